-- Asks for the time of the server, once in a call of the script, so that all locks of a call have the same time.
--
-- needs  us  nil, or the time in microseconds
-- sets   us

if not us then
  local time = redis.call('TIME')
  us = time[1] * 1000000 + time[2]
end
