/** Makes a lock that is held until it is released, from an interface that holds a lock while a function runs. */
export function holdByUsing(using) {
  return new Promise((resolve, reject) => {
    let end;
    const ended = new Promise((settle) => {
      end = settle;
    });
    const done = using(() => {
      resolve({
        release: () => {
          end();
          return done;
        },
      });
      return ended;
    });
    done.catch(reject);
  });
}
