package access

import "fmt"

// Quota is something of which a caller has no more than its roles allow, on
// each node.
type Quota uint8

// The quotas. Those of a second are of what is carried out, the others of what
// is there at a time.
const (
	CommandsPerSecond Quota = iota // commands and queries
	FuelPerSecond
	BytesPerSecond // of payloads: of commands, of queries and of their replies
	OpenStreams
	Connections // whose certificate names the caller
	Uploads
	CompileSeconds // of the processor, in a minute
)

// QuotaNames are those that operators and callers read, by Quota.
var QuotaNames = [...]string{
	CommandsPerSecond: "commands-per-second", FuelPerSecond: "fuel-per-second", BytesPerSecond: "bytes-per-second",
	OpenStreams: "streams", Connections: "connections", Uploads: "uploads", CompileSeconds: "compile-seconds-per-minute",
}

// NumQuotas is how many there are.
const NumQuotas = len(QuotaNames)

func (q Quota) String() string { return QuotaNames[q] }

// Unlimited is a quota that bounds nothing.
const Unlimited = -1

// MaxQuota is the largest number of a quota.
const MaxQuota = 1 << 50

// Quotas are what a role says of the quotas of those who have it: 0 is nothing.
type Quotas struct {
	CommandsPerSecond int64 `json:"commandsPerSecond,omitempty"`
	FuelPerSecond     int64 `json:"fuelPerSecond,omitempty"`
	BytesPerSecond    int64 `json:"bytesPerSecond,omitempty"`
	Streams           int64 `json:"streams,omitempty"`
	Connections       int64 `json:"connections,omitempty"`
	Uploads           int64 `json:"uploads,omitempty"`
	CompileSeconds    int64 `json:"compileSecondsPerMinute,omitempty"`
}

// fields are the numbers, by Quota.
func (q *Quotas) fields() [NumQuotas]*int64 {
	return [...]*int64{&q.CommandsPerSecond, &q.FuelPerSecond, &q.BytesPerSecond, &q.Streams, &q.Connections, &q.Uploads, &q.CompileSeconds}
}

// Of is what is said of a quota: 0 is nothing.
func (q Quotas) Of(which Quota) int64 { return *q.fields()[which] }

// Set says something of a quota.
func (q *Quotas) Set(which Quota, most int64) { *q.fields()[which] = most }

// What callers have of whose roles none says anything of a quota, and what all
// the anonymous have together beside callers that have a credential.
const (
	DefaultStreams        = 64
	DefaultConnections    = 128
	DefaultUploads        = 1
	DefaultCompileSeconds = 60

	AnonymousCommands = 1000
	AnonymousFuel     = 2_000_000_000
	AnonymousBytes    = 8 << 20
)

// DefaultQuotas are those of a caller of whose roles none says anything.
func DefaultQuotas() Quotas {
	return Quotas{
		CommandsPerSecond: Unlimited, FuelPerSecond: Unlimited, BytesPerSecond: Unlimited,
		Streams: DefaultStreams, Connections: DefaultConnections, Uploads: DefaultUploads, CompileSeconds: DefaultCompileSeconds,
	}
}

// AnonymousQuotas are of all the anonymous together, beside others.
func AnonymousQuotas() Quotas {
	q := DefaultQuotas()
	q.CommandsPerSecond, q.FuelPerSecond, q.BytesPerSecond = AnonymousCommands, AnonymousFuel, AnonymousBytes
	return q
}

// UnlimitedQuotas bound nothing.
func UnlimitedQuotas() Quotas {
	var q Quotas
	for _, n := range q.fields() {
		*n = Unlimited
	}
	return q
}

func (q Quotas) check() error {
	for which, n := range q.fields() {
		if *n < Unlimited || *n > MaxQuota {
			return invalid("the quota %s is %d: 1 to %d, %d for no bound, or 0 to say nothing of it", QuotaNames[which], *n, int64(MaxQuota), Unlimited)
		}
	}
	return nil
}

// QuotaText is how a number of a quota is written.
func QuotaText(most int64) string {
	if most == Unlimited {
		return "unlimited"
	}
	return fmt.Sprint(most)
}
