-- Compares `value`, the text of a lock, with `owner`: it is the owner, a token of 16 digits, and a + if there may be a
-- queue. The @ at the end of the owner keeps the owner x/1 from being found in a value of x/10.
--
-- A lock that is kept, which has = at its end, is not even its owner's: an attempt or an extension that runs late must not
-- change for how long it stands.
--
-- needs  value, owner
-- sets   mine

local mine = value and (string.sub(value, 1, -17) == owner
  or (string.sub(value, -1) == '+' and string.sub(value, 1, -18) == owner))
