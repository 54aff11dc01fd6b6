-- Says whether one more may hold a lock beside those who do.
--
-- needs  crowd, kind
--        weight, most  its permits, and the limit that it names
-- sets   fits

local fits = not crowd
  or (kind == crowd.kind and (kind == 's' or crowd.used + weight <= math.min(most, crowd.smallest)))
