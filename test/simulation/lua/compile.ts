import { compileFunction } from 'node:vm';
import luaparse, { type Chunk, type Expression, type Identifier, type Node, type Statement } from 'luaparse';
import * as library from './library.js';
import { Table, type LuaFunction, type LuaValue, type Multi, type RedisOfScripts } from './values.js';

export type CompiledScript = (redis: RedisOfScripts, keys: Table, args: Table) => LuaValue | Multi;

/**
 * Compiles a script of the library to a JavaScript function: the part of Lua 5.1 that the scripts use. It refuses
 * anything unknown here, and not when the script runs.
 * @throws Error naming the line
 */
export function compile(source: string): CompiledScript {
  const chunk = luaparse.parse(source, {
    luaVersion: '5.1',
    locations: true,
    encodingMode: 'pseudo-latin1',
    comments: false,
  });
  const make = compileFunction(new Compiler().chunk(chunk), ['lua', 'Table']) as (
    lua: typeof library,
    table: typeof Table,
  ) => CompiledScript;
  return make(library, Table);
}

const COMPARISONS: Readonly<Record<string, string>> = {
  '<': 'less',
  '<=': 'lessOrEqual',
  '>': 'greater',
  '>=': 'greaterOrEqual',
};
const REDIS = ['call', 'pcall'];

/**
 * Each local variable of Lua becomes a JavaScript variable with a number after its name, so that none hides another.
 */
class Compiler {
  readonly #scopes = [new Map([['KEYS', 'KEYS'], ['ARGV', 'ARGV']])]; // prettier-ignore
  #count = 0;
  /** The variables of the compiled function that contain a value while it is tested. */
  #tested: string[] = [];
  /** The variable of that function that contains the values of `...`. */
  #rest?: string;

  chunk({ body }: Chunk): string {
    return `'use strict'; return (redis, KEYS, ARGV) => ${this.#function([], body)}();`;
  }

  #declare(name: string): string {
    const variable = `${name}$${++this.#count}`;
    this.#scopes.at(-1)!.set(name, variable);
    return variable;
  }

  #lookUp(name: string): string | undefined {
    for (let at = this.#scopes.length - 1; at >= 0; at--) {
      const variable = this.#scopes[at]!.get(name);
      if (variable) return variable;
    }
    return undefined;
  }

  #inScope<T>(compileIt: () => T): T {
    this.#scopes.push(new Map());
    try {
      return compileIt();
    } finally {
      this.#scopes.pop();
    }
  }

  #variable(node: Identifier): string {
    return this.#lookUp(node.name) ?? refuse(node, `the global variable ${node.name}`);
  }

  #tests(): string {
    const variable = `tested$${++this.#count}`;
    this.#tested.push(variable);
    return variable;
  }

  #function(parameters: readonly (Identifier | Node)[], body: readonly Statement[]): string {
    const [outer, outerRest] = [this.#tested, this.#rest];
    this.#tested = [];
    this.#rest = undefined;
    const [names, code] = this.#inScope(() => {
      const declared = parameters.map((parameter) => {
        if (parameter.type === 'Identifier') return this.#declare(parameter.name);
        return `...${(this.#rest = `rest$${++this.#count}`)}`;
      });
      return [declared, this.#statements(body)];
    });
    const tested = this.#tested.length > 0 ? `let ${this.#tested.join(', ')};` : '';
    [this.#tested, this.#rest] = [outer, outerRest];
    return `((${names.join(', ')}) => {${tested}\n${code}\n})`;
  }

  #statements(body: readonly Statement[]): string {
    return body.map((statement) => this.#statement(statement)).join('\n');
  }

  #block(body: readonly Statement[]): string {
    return this.#inScope(() => `{\n${this.#statements(body)}\n}`);
  }

  #statement(node: Statement): string {
    switch (node.type) {
      case 'LocalStatement': {
        const { variables, init } = node;
        // Before the names: they are not visible in their own values.
        const values = variables.length === 1 && init.length === 1 ? this.#expression(init[0]!) : this.#values(init);
        const names = variables.map(({ name }) => this.#declare(name));
        return names.length === 1 && init.length === 1
          ? `let ${names[0]} = ${values};`
          : `let [${names.join(', ')}] = ${values};`;
      }
      case 'AssignmentStatement':
        return this.#assignment(node.variables, node.init);
      case 'CallStatement':
        return node.expression.type === 'CallExpression'
          ? `${this.#call(node.expression)};`
          : refuse(node, 'this call');
      case 'DoStatement':
        return this.#block(node.body);
      case 'IfStatement':
        return node.clauses
          .map((clause) =>
            clause.type === 'ElseClause'
              ? `else ${this.#block(clause.body)}`
              : `${clause.type === 'IfClause' ? '' : 'else '}if (${this.#condition(clause.condition)}) ${this.#block(clause.body)}`,
          )
          .join(' ');
      case 'WhileStatement':
        return `while (${this.#condition(node.condition)}) ${this.#block(node.body)}`;
      case 'RepeatStatement': // its condition sees the variables of its body
        return this.#inScope(
          () => `for (;;) {\n${this.#statements(node.body)}\nif (${this.#condition(node.condition)}) break;\n}`,
        );
      case 'ForNumericStatement': {
        const [from, to, step] = [node.start, node.end, node.step].map((each) => (each ? this.#number(each) : '1'));
        return this.#inScope(() => {
          const variable = this.#declare(node.variable.name);
          const [at, end, by] = ['at', 'end', 'by'].map((part) => `${variable}_${part}`);
          return (
            `for (let ${at} = ${from}, ${end} = ${to}, ${by} = ${step}; ${by} > 0 ? ${at} <= ${end} : ${at} >= ${end}; ` +
            `${at} += ${by}) {\nlet ${variable} = ${at};\n${this.#statements(node.body)}\n}`
          );
        });
      }
      case 'ForGenericStatement':
        return this.#ipairs(node);
      case 'FunctionDeclaration': {
        if (!node.isLocal || node.identifier?.type !== 'Identifier') return refuse(node, 'a global function');
        const name = this.#declare(node.identifier.name);
        return `const ${name} = ${this.#function(node.parameters, node.body)};`;
      }
      case 'ReturnStatement': {
        const { arguments: values } = node;
        if (values.length === 1)
          return `return ${isCall(values[0]!) ? this.#call(values[0]) : this.#expression(values[0]!)};`;
        return values.length === 0 ? 'return undefined;' : `return lua.results(${this.#values(values)});`;
      }
      case 'BreakStatement':
        return 'break;';
      default:
        return refuse(node, node.type);
    }
  }

  #assignment(targets: readonly (Identifier | Expression)[], init: readonly Expression[]): string {
    const [target] = targets;
    if (targets.length === 1 && target!.type !== 'Identifier') {
      const value = this.#expression(init[0]!);
      if (target!.type === 'IndexExpression')
        return `lua.setIndex(${this.#expression(target!.base)}, ${this.#expression(target!.index)}, ${value});`;
      if (target!.type === 'MemberExpression')
        return `lua.setIndex(${this.#expression(target!.base)}, ${JSON.stringify(target!.identifier.name)}, ${value});`;
    }
    const names = targets.map((each) =>
      each.type === 'Identifier' ? this.#variable(each) : refuse(each, 'an assignment to several fields'),
    );
    if (names.length === 1 && init.length === 1) return `${names[0]} = ${this.#expression(init[0]!)};`;
    return `[${names.join(', ')}] = ${this.#values(init)};`;
  }

  #ipairs(node: Extract<Statement, { type: 'ForGenericStatement' }>): string {
    const [iterator] = node.iterators;
    const isIpairs =
      node.iterators.length === 1 &&
      iterator?.type === 'CallExpression' &&
      iterator.base.type === 'Identifier' &&
      iterator.base.name === 'ipairs' &&
      node.variables.length === 2;
    if (!isIpairs) return refuse(node, 'a loop over anything but ipairs');
    const table = this.#expression(iterator.arguments[0]!);
    return this.#inScope(() => {
      const [position, value] = node.variables.map(({ name }) => this.#declare(name));
      return (
        `for (let ${position}_of = ${table}, ${position} = 1, ${value}; ` +
        `(${value} = lua.index(${position}_of, ${position})) !== undefined; ${position}++) {\n${this.#statements(node.body)}\n}`
      );
    });
  }

  /** A JavaScript expression that is true if the Lua expression is neither nil nor false. */
  #condition(node: Expression): string {
    if (node.type === 'BooleanLiteral') return String(node.value);
    if (node.type === 'BinaryExpression' && (node.operator in COMPARISONS || ['==', '~='].includes(node.operator)))
      return this.#expression(node);
    if (node.type === 'UnaryExpression' && node.operator === 'not') return `!(${this.#condition(node.argument)})`;
    if (node.type === 'LogicalExpression') {
      const operator = node.operator === 'and' ? '&&' : '||';
      return `((${this.#condition(node.left)}) ${operator} (${this.#condition(node.right)}))`;
    }
    return this.#isTrue(this.#tests(), node);
  }

  #isTrue(variable: string, node: Expression): string {
    return `(${variable} = ${this.#expression(node)}) !== undefined && ${variable} !== false`;
  }

  #number(node: Expression): string {
    return node.type === 'NumericLiteral' ? this.#expression(node) : `lua.toNumber(${this.#expression(node)})`;
  }

  #text(node: Expression): string {
    return node.type === 'StringLiteral' ? this.#expression(node) : `lua.toText(${this.#expression(node)})`;
  }

  #expression(node: Expression): string {
    switch (node.type) {
      case 'NumericLiteral':
      case 'BooleanLiteral':
        return String(node.value);
      case 'StringLiteral':
        return JSON.stringify(node.value);
      case 'NilLiteral':
        return 'undefined';
      case 'Identifier':
        return node.name === 'redis' && !this.#lookUp('redis') ? 'lua.redisTable(redis)' : this.#variable(node);
      case 'VarargLiteral':
        return `${this.#rest ?? refuse(node, '"..." outside of a function')}[0]`;
      case 'FunctionDeclaration':
        return this.#function(node.parameters, node.body);
      case 'BinaryExpression':
        return this.#binary(node.operator, node.left, node.right, node);
      case 'UnaryExpression':
        if (node.operator === 'not') return `!(${this.#condition(node.argument)})`;
        if (node.operator === '-') return `(-${this.#number(node.argument)})`;
        if (node.operator === '#') return `lua.lengthOf(${this.#expression(node.argument)})`;
        return refuse(node, node.operator);
      case 'LogicalExpression': {
        const left = this.#tests();
        const isTrue = this.#isTrue(left, node.left);
        const right = this.#expression(node.right);
        return node.operator === 'and' ? `(${isTrue} ? ${right} : ${left})` : `(${isTrue} ? ${left} : ${right})`;
      }
      case 'MemberExpression':
        return `lua.index(${this.#expression(node.base)}, ${JSON.stringify(node.identifier.name)})`;
      case 'IndexExpression':
        return `lua.index(${this.#expression(node.base)}, ${this.#expression(node.index)})`;
      case 'CallExpression':
        return `lua.first(${this.#call(node)})`;
      case 'TableConstructorExpression': {
        const listed = node.fields.flatMap((field) => (field.type === 'TableValue' ? [field.value] : []));
        const named = node.fields.flatMap((field) => (field.type === 'TableKeyString' ? [field] : []));
        if (listed.length + named.length < node.fields.length)
          return refuse(node, 'a table with fields of other names');
        const fields = named.map(({ key, value }) => `${JSON.stringify(key.name)}: ${this.#expression(value)}`);
        return `new Table(${this.#values(listed)}, {${fields.join(', ')}})`;
      }
      default:
        return refuse(node, node.type);
    }
  }

  #binary(operator: string, left: Expression, right: Expression, node: Node): string {
    if (['+', '-', '*', '/'].includes(operator)) return `(${this.#number(left)} ${operator} ${this.#number(right)})`;
    if (operator === '..') return `(${this.#text(left)} + ${this.#text(right)})`;
    const [a, b] = [this.#expression(left), this.#expression(right)];
    if (operator === '==') return `(${a} === ${b})`;
    if (operator === '~=') return `(${a} !== ${b})`;
    const comparison = COMPARISONS[operator];
    return comparison ? `lua.${comparison}(${a}, ${b})` : refuse(node, operator);
  }

  /** A JavaScript array, with all results of the last expression if it is a call or `...`. */
  #values(nodes: readonly Expression[]): string {
    const last = nodes.at(-1);
    if (last?.type === 'VarargLiteral' && this.#rest)
      return `[${[...nodes.slice(0, -1).map((node) => this.#expression(node)), `...${this.#rest}`].join(', ')}]`;
    if (!last || !isCall(last)) return `[${nodes.map((node) => this.#expression(node)).join(', ')}]`;
    return `[${[...nodes.slice(0, -1).map((node) => this.#expression(node)), `...lua.all(${this.#call(last)})`].join(', ')}]`;
  }

  #call(node: Extract<Expression, { type: 'CallExpression' }>): string {
    const { base } = node;
    const args = this.#values(node.arguments);
    if (base.type === 'Identifier') {
      const local = this.#lookUp(base.name);
      if (local) return `lua.call(${local}, ${args})`;
      return base.name in library.globals ? `lua.globals.${base.name}(...${args})` : refuse(node, base.name);
    }
    if (base.type !== 'MemberExpression' || base.base.type !== 'Identifier') return refuse(node, 'a call of a field');
    if (this.#lookUp(base.base.name)) return `lua.call(${this.#expression(base)}, ${args})`;
    const [room, name] = [base.base.name, base.identifier.name];
    if (room === 'redis' && REDIS.includes(name)) return `redis.${name}(${node.loc!.start.line}, ${args})`;
    const functions: Record<string, Readonly<Record<string, LuaFunction>>> = {
      string: library.string,
      math: library.math,
      table: library.table,
    };
    if (!(name in (functions[room] ?? {}))) return refuse(node, `${room}.${name}`);
    return `lua.${room}.${name}(...${args})`;
  }
}

function isCall(node: Expression): node is Extract<Expression, { type: 'CallExpression' }> {
  return node.type === 'CallExpression';
}

function refuse(node: Node, what: string): never {
  const line = node.loc?.start.line ?? '?';
  throw new Error(`The simulation does not know ${what}, in line ${line} of a script: add it to test/simulation/lua.`);
}
