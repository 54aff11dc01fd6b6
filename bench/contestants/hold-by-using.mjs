/** Makes a lock that is held until it is released of an interface that holds it for as long as a function runs. */
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
