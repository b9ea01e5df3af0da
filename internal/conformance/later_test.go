package conformance

// laterFamilies are the families that wait as a whole for a part of the engine.
var laterFamilies = map[string]string{
	"kafka_rate": "kafka",
}

// later returns the part of the engine that a case waits for, "" if none.
func later(c *golden) string { return laterFamilies[c.Family] }
