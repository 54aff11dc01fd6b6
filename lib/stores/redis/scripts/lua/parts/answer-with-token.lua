-- The end of a script that has taken `lock`: replies with its token, or gives the lock up for want of one.
--
-- needs  lock, token, problem

if problem then
  redis.call('DEL', lock)
  return problem
end
return token
