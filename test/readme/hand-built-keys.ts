import ts from 'typescript';

/** What takes the key of a lock, or of a fence, as its first argument, by name. */
const TAKE_A_KEY = new Set([
  ...['acquire', 'acquireAll', 'tryAcquire', 'tryAcquireAll', 'withLock'],
  ...['isLocked', 'inspect', 'forceRelease', 'current', 'leader'],
  ...['Locked', 'LockedCron', 'LeaderOnly', 'WhileLeader', 'fromContext', 'Fenced', 'FencingToken'],
]);
/** Those that other things have, too, with the objects that take a key there. */
const OF_OBJECTS: ReadonlyMap<string, RegExp> = new Map([
  ['get', /^(locks|set|held)$/],
  ['refuse', /^(bench|billing)$/],
  ['write', /fence$/i],
  ['read', /fence$/i],
  ['raise', /fence$/i],
]);

/**
 * Keys that are put together by hand, of text and values, and not by `lockKey` or a template of `@Locked`: a value that is
 * undefined or empty would become a part of them unseen.
 * @returns their texts in the source
 */
export function handBuiltKeys(source: string): string[] {
  const file = ts.createSourceFile('example.ts', source, ts.ScriptTarget.Latest, true);
  const found = new Set<ts.Node>();
  const visit = (node: ts.Node): void => {
    if (ts.isCallExpression(node) && takesAKey(node.expression) && node.arguments[0]) {
      for (const part of handBuiltIn(node.arguments[0], file)) found.add(part);
    }
    ts.forEachChild(node, visit);
  };
  visit(file);
  return [...found].map((node) => node.getText());
}

function takesAKey(callee: ts.Expression): boolean {
  if (ts.isIdentifier(callee)) return TAKE_A_KEY.has(callee.text);
  if (!ts.isPropertyAccessExpression(callee)) return false;
  const { name, expression } = callee;
  const object = ts.isPropertyAccessExpression(expression) ? expression.name.text : expression.getText();
  return TAKE_A_KEY.has(name.text) || OF_OBJECTS.get(name.text)?.test(object) === true;
}

function* handBuiltIn(node: ts.Node, file: ts.SourceFile): Generator<ts.Node> {
  if (ts.isTaggedTemplateExpression(node) && node.tag.getText() === 'lockKey') return;
  if (ts.isTemplateExpression(node) || isJoinedText(node)) yield node;
  else if (ts.isIdentifier(node)) {
    const value = valueOf(node.text, file);
    if (value) yield* handBuiltIn(value, file);
  } else for (const child of node.getChildren()) yield* handBuiltIn(child, file);
}

function isJoinedText(node: ts.Node): boolean {
  if (!ts.isBinaryExpression(node) || node.operatorToken.kind !== ts.SyntaxKind.PlusToken) return false;
  return [node.left, node.right].some((side) => ts.isStringLiteralLike(side) || isJoinedText(side));
}

/** The text that a constant of this name has, in the first place where it has one. */
function valueOf(name: string, file: ts.SourceFile): ts.Expression | undefined {
  let value: ts.Expression | undefined;
  const visit = (node: ts.Node): void => {
    if (ts.isVariableDeclaration(node) && node.name.getText() === name) {
      const { initializer } = node;
      if (initializer && (ts.isTemplateExpression(initializer) || isJoinedText(initializer))) value ??= initializer;
    }
    ts.forEachChild(node, visit);
  };
  visit(file);
  return value;
}
