/** The options of a command; without them it says what was wrong, and how to use it. */
export function settingsOf(readArguments, usage) {
  try {
    return readArguments();
  } catch (error) {
    console.error(`${error.message}\n\n${usage}`);
    return process.exit(2);
  }
}
