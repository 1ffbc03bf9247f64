package access

import "fmt"

// Quota is a resource whose use by a caller is limited on each node according
// to the caller's roles.
type Quota uint8

// The quotas. Per-second quotas limit the rate of work; the other quotas limit
// the number of objects that exist at a time.
const (
	CommandsPerSecond Quota = iota // commands and queries
	FuelPerSecond
	BytesPerSecond // payload bytes of commands, queries and their replies
	OpenStreams
	Connections // connections whose certificate names the caller
	Uploads
	CompileSeconds // processor seconds per minute for compiling modules
)

// QuotaNames are the names shown to operators and callers, indexed by Quota.
var QuotaNames = [...]string{
	CommandsPerSecond: "commands-per-second", FuelPerSecond: "fuel-per-second", BytesPerSecond: "bytes-per-second",
	OpenStreams: "streams", Connections: "connections", Uploads: "uploads", CompileSeconds: "compile-seconds-per-minute",
}

// NumQuotas is the number of quotas.
const NumQuotas = len(QuotaNames)

func (q Quota) String() string { return QuotaNames[q] }

// Unlimited is the value of a quota without a limit.
const Unlimited = -1

// MaxQuota is the maximum value of a quota.
const MaxQuota = 1 << 50

// Quotas are the quotas that a role sets. 0 leaves a quota unset.
type Quotas struct {
	CommandsPerSecond int64 `json:"commandsPerSecond,omitempty"`
	FuelPerSecond     int64 `json:"fuelPerSecond,omitempty"`
	BytesPerSecond    int64 `json:"bytesPerSecond,omitempty"`
	Streams           int64 `json:"streams,omitempty"`
	Connections       int64 `json:"connections,omitempty"`
	Uploads           int64 `json:"uploads,omitempty"`
	CompileSeconds    int64 `json:"compileSecondsPerMinute,omitempty"`
}

// fields returns pointers to the values, indexed by Quota.
func (q *Quotas) fields() [NumQuotas]*int64 {
	return [...]*int64{&q.CommandsPerSecond, &q.FuelPerSecond, &q.BytesPerSecond, &q.Streams, &q.Connections, &q.Uploads, &q.CompileSeconds}
}

// Get returns the value of a quota, 0 if it is unset.
func (q Quotas) Get(which Quota) int64 { return *q.fields()[which] }

// Defaults for callers if none of their roles sets the quota. All anonymous
// callers of a node share the Anonymous values, which apply if other callers
// have credentials.
const (
	defaultStreams        = 64
	defaultConnections    = 128
	defaultUploads        = 1
	defaultCompileSeconds = 60

	anonymousCommands = 1000
	anonymousFuel     = 2_000_000_000
	anonymousBytes    = 8 << 20
)

// DefaultQuotas returns the quotas of a caller whose roles set none.
func DefaultQuotas() Quotas {
	return Quotas{
		CommandsPerSecond: Unlimited, FuelPerSecond: Unlimited, BytesPerSecond: Unlimited,
		Streams: defaultStreams, Connections: defaultConnections, Uploads: defaultUploads, CompileSeconds: defaultCompileSeconds,
	}
}

// AnonymousQuotas returns the quotas that all anonymous callers share, if other
// callers have credentials.
func AnonymousQuotas() Quotas {
	q := DefaultQuotas()
	q.CommandsPerSecond, q.FuelPerSecond, q.BytesPerSecond = anonymousCommands, anonymousFuel, anonymousBytes
	return q
}

// unlimitedQuotas returns quotas without limits.
func unlimitedQuotas() Quotas {
	var q Quotas
	for _, n := range q.fields() {
		*n = Unlimited
	}
	return q
}

func (q Quotas) check() error {
	for which, n := range q.fields() {
		if *n < Unlimited || *n > MaxQuota {
			return invalid("the quota %s must be 1 to %[3]d, %[4]d for unlimited, or 0 to leave it unset, got %[2]d", QuotaNames[which], *n, int64(MaxQuota), Unlimited)
		}
	}
	return nil
}

// QuotaText formats the value of a quota.
func QuotaText(most int64) string {
	if most == Unlimited {
		return "unlimited"
	}
	return fmt.Sprint(most)
}
