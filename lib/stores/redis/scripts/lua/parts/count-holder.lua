-- Adds the text of a holder to `holders`, see read-holders.lua.
--
-- needs  holders, text
--        finish, weight, most  its expiry in ms, its permits, and its limit

holders.texts[#holders.texts + 1] = text
holders.count = holders.count + 1
holders.used = holders.used + weight
holders.smallest = math.min(holders.smallest, most)
if tonumber(finish) < holders.first then
  holders.first = tonumber(finish)
  holders.first_text = text
end
if tonumber(finish) > holders.last then
  holders.last = tonumber(finish)
  holders.last_text = text
end
