-- Stands before every script: what a throttled factor has climbed back to, from 0 to 1.
--
-- low is the factor right after the last refusal and ceiling what was refused, in millionths; at is when.
-- See arithmetic.recovered.
local function recovered(low, ceiling, at, now, window, steepness)
  low, ceiling = low / 1000000, ceiling / 1000000
  local plateau = (math.max(0, ceiling - low) / steepness) ^ (1 / 3)
  return math.min(1, ceiling + steepness * (math.max(0, now - at) / window - plateau) ^ 3)
end

