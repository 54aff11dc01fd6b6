-- Decides whether `owner` holds a lock. The text `value` is the owner, a token of 16 digits, and a + if there may be a queue. The @ at the
-- end of the owner prevents x/1 from matching the value of x/10.
--
-- A kept lock, whose value ends in =, does not match: a late attempt or extension must not change its ttl.
--
-- needs  value, owner
-- sets   mine

local mine = value and (string.sub(value, 1, -17) == owner
  or (string.sub(value, -1) == '+' and string.sub(value, 1, -18) == owner))
