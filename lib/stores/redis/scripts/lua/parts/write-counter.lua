-- Writes `highest` into the counter. It is above the old value and ahead of the clock. There are no more tokens beyond the largest
-- integer that Lua and JavaScript represent exactly.
--
-- needs  fence, highest, problem
-- sets   problem

if highest < 9e15 then
  problem = redis.pcall('SET', fence, string.format('%016.0f', highest)).err
else
  problem = 'ERR the fencing counter ' .. fence .. ' is out of range: delete it'
end
