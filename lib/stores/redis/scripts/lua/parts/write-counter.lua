-- Writes the counter to `highest`, which is above it and ahead of the clock. Beyond the last number that Lua and JavaScript
-- count exactly there are no more tokens.
--
-- needs  fence, highest, problem
-- sets   problem

if highest < 9e15 then
  problem = redis.pcall('SET', fence, string.format('%016.0f', highest)).err
else
  problem = 'ERR the fencing counter ' .. fence .. ' is out of range: delete it'
end
