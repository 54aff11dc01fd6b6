-- Compares `value`, the text of a lock, with `owner`: it is the owner, a token of 16 digits, and a + if there may be a
-- queue. The @ at the end of the owner keeps the owner x/1 from being found in a value of x/10.
--
-- needs  value, owner
-- sets   mine

local mine = string.sub(value, 1, -17) == owner or string.sub(value, 1, -18) == owner
