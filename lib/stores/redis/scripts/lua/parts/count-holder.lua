-- Adds a holder to `crowd`, see read-crowd.lua.
--
-- needs  crowd, text
--        finish, weight, most  its end in ms, its permits, and the limit that it names

crowd.texts[#crowd.texts + 1] = text
crowd.count = crowd.count + 1
crowd.used = crowd.used + weight
crowd.smallest = math.min(crowd.smallest, most)
if tonumber(finish) < crowd.first then
  crowd.first = tonumber(finish)
  crowd.first_text = text
end
if tonumber(finish) > crowd.last then
  crowd.last = tonumber(finish)
  crowd.last_text = text
end
