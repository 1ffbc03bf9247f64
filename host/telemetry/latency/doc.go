// Package latency counts how long things take, for a price that hot paths can
// pay: an observation is two atomic additions and allocates nothing. What was
// counted is served as a classic histogram and as a native one, so that one
// scraper can compare across releases and the other reads quantiles exactly.
//
// It knows nothing of what it counts, and starts no goroutine.
package latency
