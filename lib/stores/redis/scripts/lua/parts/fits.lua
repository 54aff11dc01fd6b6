-- Decides whether one more owner can join the holders of a lock.
--
-- needs  holders, kind
--        weight, most  its permits, and its limit
-- sets   fits

local fits = not holders
  or (kind == holders.kind and (kind == 's' or holders.used + weight <= math.min(most, holders.smallest)))
