/** Reads the options of a command. Without them, it prints the error and the usage. */
export function settingsOf(readArguments, usage) {
  try {
    return readArguments();
  } catch (error) {
    console.error(`${error.message}\n\n${usage}`);
    return process.exit(2);
  }
}
