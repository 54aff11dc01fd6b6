-- Asks for the time of the server, once in a call of the script: all locks of a call have the same.
--
-- needs  us  nil, or the time in microseconds, which it is afterwards

if not us then
  local time = redis.call('TIME')
  us = time[1] * 1000000 + time[2]
end
