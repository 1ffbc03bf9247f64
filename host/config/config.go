// Package config is a node's configuration: its keys, their defaults and
// units, and the three places they come from. A key has one name everywhere:
// `max-entity-in-flight` in the file, HOSTD_MAX_ENTITY_IN_FLIGHT in the
// environment, --max-entity-in-flight on the command line. It never opens
// anything but the configuration file and, when asked, the file of the gossip
// key, and starts no goroutine.
package config

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hostd/hostd/sharding"
)

// Admin says what the cluster service allows.
type Admin string

// The values of Config.Admin.
const (
	AdminReadOnly Admin = "read-only"
	AdminFull     Admin = "full"
)

// Auth says whether callers must say who they are.
type Auth string

// The values of Config.Auth.
const (
	AuthNone     Auth = "none"     // nobody is asked
	AuthAllow    Auth = "allow"    // a credential is checked, and those without one are let in
	AuthRequired Auth = "required" // nobody is let in without a credential
)

// Audit says which calls a node keeps account of.
type Audit string

// The values of Config.Audit. None is AuditChanges where callers are
// authenticated, AuditOff otherwise.
const (
	AuditOff     Audit = "off"
	AuditChanges Audit = "changes" // what changes something, and what is refused
	AuditAll     Audit = "all"
)

// AuditFailure says what a change comes to that the audit log has no line of.
type AuditFailure string

// The values of Config.AuditFailure.
const (
	AuditDenyChanges AuditFailure = "deny-changes"
	AuditContinue    AuditFailure = "continue"
)

// ModuleSignatures says what a node makes of the signatures of modules.
type ModuleSignatures string

// The values of Config.ModuleSignatures.
const (
	SignaturesOff     ModuleSignatures = "off"     // nothing
	SignaturesWarn    ModuleSignatures = "warn"    // a module whose signature does not count is told of
	SignaturesRequire ModuleSignatures = "require" // and neither taken nor served
)

// LogFormat says how log lines look.
type LogFormat string

// The values of Config.LogFormat.
const (
	LogAuto LogFormat = "auto" // text on a terminal, JSON otherwise
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// Config is everything a node can be told. The zero value is not usable: start
// from Default. Each
// key's unit and meaning is in Fields.
type Config struct {
	DataDir        string
	Listen         string
	PeerListen     string
	HealthListen   string
	InsecureListen bool
	InsecurePeers  bool
	NodeID         sharding.NodeID
	Shards         uint32
	Lanes          int
	Admin          Admin
	Console        Console
	LogLevel       slog.Level
	LogFormat      LogFormat
	StopTimeout    time.Duration
	DiskStallAfter time.Duration

	Auth         Auth
	TokenFile    string
	AuthCertName CertName
	// AuthBootstrapFile names who is admin first, while nobody is.
	AuthBootstrapFile string
	OIDCIssuer        string
	OIDCAudience      string
	// OIDCAuthorizedParties are the clients besides the audience to which a token
	// may have been issued.
	OIDCAuthorizedParties []string
	OIDCNameClaim         string
	OIDCGroupsClaim       string
	JWTKeysFile           string
	Audit                 Audit
	AuditFile             string
	AuditFailure          AuditFailure

	ModuleTrustFile  string
	ModuleSignatures ModuleSignatures

	OTLPEndpoint     string
	OTLPHeadersFile  string
	TraceRatio       float64 // of what begins here, 0 to 1
	TraceTrustRemote bool

	Seeds              []string
	Bootstrap          bool
	BootstrapExpect    int
	Advertise          string
	PeerAdvertise      string
	AllowHosts         []string
	AllowOrigins       []string
	ClusterName        string
	GossipKeyFile      string
	TLSMode            TLSMode
	TLSCertFile        string
	TLSKeyFile         string
	TLSClientCAFile    string
	TLSClientAuth      TLSClientAuth
	PeerTLSMode        TLSMode
	PeerCertFile       string
	PeerKeyFile        string
	PeerCAFile         string
	PeerCRLFile        string
	Roles              []Role
	Zone               string
	MinMembers         int
	Replication        int
	DeadAfter          time.Duration
	SilentAfter        time.Duration
	LeadAgainAfter     time.Duration
	Tick               time.Duration
	RebalanceThreshold int
	RebalanceMoves     int

	MaxAddressConns     int
	MaxAddressStreams   int
	MaxMessageBytes     Bytes
	MaxModuleBytes      Bytes
	MaxEntityInFlight   int
	MaxShardInFlight    int
	MaxStreamBytes      Bytes
	MaxWaitingBytes     Bytes
	MaxOutboxSends      int
	MaxOutboxBytes      Bytes
	DefaultDeadline     time.Duration
	MaxDeadline         time.Duration
	InstanceMemoryBytes Bytes
	GuestMemoryBytes    Bytes
	TimerRate           int
	LeastTick           time.Duration
	TellFaults          bool
	Debug               bool
	CommandFuel         int
	QueryFuel           int
	WALSegmentBytes     Bytes
	ScrubBytesPerSecond Bytes
	VerifyRate          int // events a second; 0 is any number
	DiskWarnPercent     int
	DiskReadOnlyPercent int
	DiskReadOnlyBytes   Bytes // at least
	DiskReadOnlyMax     Bytes // what the percentage comes to at most

	// CompileProgram is a path, not a key: the program sets it to its own. Run
	// with the one argument compile-module it must call guest.CompileChild.
	// When it is empty the node compiles modules in its own process, which a
	// module made to can then hold for minutes.
	CompileProgram string
}

// Default returns the defaults.
func Default() Config {
	return Config{
		DataDir:     "hostd-data",
		Listen:      "127.0.0.1:7070",
		NodeID:      "n1",
		Shards:      sharding.DefaultShards,
		Admin:       AdminReadOnly,
		Console:     ConsoleAuto,
		LogLevel:    slog.LevelInfo,
		LogFormat:   LogAuto,
		StopTimeout: 10 * time.Second,

		DiskStallAfter: 20 * time.Second,

		Auth:            AuthNone,
		OIDCNameClaim:   "sub",
		OIDCGroupsClaim: "groups",
		AuditFailure:    AuditDenyChanges,

		ModuleSignatures: SignaturesOff,
		TraceTrustRemote: true,

		ClusterName:        "hostd",
		Roles:              []Role{RoleHost},
		Replication:        3,
		DeadAfter:          5 * time.Minute,
		SilentAfter:        700 * time.Millisecond,
		LeadAgainAfter:     10 * time.Second,
		Tick:               100 * time.Millisecond,
		RebalanceThreshold: 2,
		RebalanceMoves:     64,

		MaxAddressConns:     2048,
		MaxAddressStreams:   512,
		MaxMessageBytes:     1 << 20,
		MaxModuleBytes:      16 << 20,
		MaxEntityInFlight:   1024,
		MaxShardInFlight:    4096,
		MaxStreamBytes:      16 << 20,
		MaxWaitingBytes:     256 << 20,
		MaxOutboxSends:      1 << 18,
		MaxOutboxBytes:      1 << 30,
		DefaultDeadline:     5 * time.Second,
		MaxDeadline:         30 * time.Second,
		InstanceMemoryBytes: 64 << 20,
		GuestMemoryBytes:    2 << 30,
		TimerRate:           10_500,
		LeastTick:           time.Second,
		CommandFuel:         400_000_000,
		QueryFuel:           400_000_000,
		WALSegmentBytes:     64 << 20,
		ScrubBytesPerSecond: 2 << 20,
		VerifyRate:          50_000,
		DiskWarnPercent:     20,
		DiskReadOnlyPercent: 5,
		DiskReadOnlyBytes:   512 << 20,
		DiskReadOnlyMax:     4 << 30,
	}
}

// Hard bounds of the configurable limits.
const (
	maxShards         = 4096
	maxLanes          = 256
	maxMessageBytes   = 64 << 20
	maxModuleBytes    = 32 << 20
	maxInstanceBytes  = 256 << 20
	minInstanceBytes  = 1 << 20
	wasmPageBytes     = 64 << 10
	minSegmentBytes   = 8 << 20 // holds the largest log record twice
	maxSegmentBytes   = 1 << 30
	minFuel           = 100_000       // one slice
	maxFuel           = 2_000_000_000 // about half a second of a core
	segmentBlockBytes = 4096
)

// Validate joins all faults, each naming the key, what is wrong and what is
// allowed.
func (c *Config) Validate() error {
	var faults []error
	fault := func(key, format string, args ...any) {
		faults = append(faults, fmt.Errorf(key+": "+format, args...))
	}
	if c.DataDir == "" {
		fault("data-dir", "is empty")
	}
	if err := checkName(string(c.NodeID)); err != nil {
		fault("node-id", "%w", err)
	}
	c.checkAddresses(fault)
	c.checkGuards(fault)
	c.checkAuth(fault)
	c.checkConsole(fault)
	c.checkTraces(fault)
	c.checkAudit(fault)
	c.checkModules(fault)
	c.checkCluster(fault)
	c.checkTLS(fault)
	c.checkPeerTLS(fault)
	if c.Admin != AdminReadOnly && c.Admin != AdminFull {
		fault("admin", "is %q, must be %s or %s", c.Admin, AdminReadOnly, AdminFull)
	}
	if c.LogFormat != LogAuto && c.LogFormat != LogText && c.LogFormat != LogJSON {
		fault("log-format", "is %q, must be %s, %s or %s", c.LogFormat, LogAuto, LogText, LogJSON)
	}
	for _, r := range c.ranges() {
		if r.value < r.low || r.value > r.high {
			fault(r.key, "is %s, must be from %s to %s", r.show(r.value), r.show(r.low), r.show(r.high))
		}
	}
	if c.InstanceMemoryBytes%wasmPageBytes != 0 {
		fault("instance-memory-bytes", "is %s, must be a multiple of %s", c.InstanceMemoryBytes, Bytes(wasmPageBytes))
	}
	if c.WALSegmentBytes%segmentBlockBytes != 0 {
		fault("wal-segment-bytes", "is %s, must be a multiple of %s", c.WALSegmentBytes, Bytes(segmentBlockBytes))
	}
	if c.DefaultDeadline > c.MaxDeadline {
		fault("default-deadline", "is %s, above max-deadline, %s", c.DefaultDeadline, c.MaxDeadline)
	}
	if c.SilentAfter < 2*c.Tick {
		fault("silent-after", "is %s, must be at least two of tick, %s", c.SilentAfter, c.Tick)
	}
	if c.DiskReadOnlyPercent > c.DiskWarnPercent {
		fault("disk-read-only-percent", "is %d, above disk-warn-percent, %d", c.DiskReadOnlyPercent, c.DiskWarnPercent)
	}
	return errors.Join(faults...)
}

// bound is the range of one number.
type bound struct {
	key              string
	value, low, high int64
	show             func(int64) string
}

func (c *Config) ranges() []bound {
	number := func(n int64) string { return fmt.Sprint(n) }
	bytes := func(n int64) string { return Bytes(n).String() }
	span := func(n int64) string { return time.Duration(n).String() }
	return []bound{
		{"shards", int64(c.Shards), 1, maxShards, number},
		{"lanes", int64(c.Lanes), 0, maxLanes, number},
		{"stop-timeout", int64(c.StopTimeout), int64(time.Second), int64(10 * time.Minute), span},
		{"disk-stall-after", int64(c.DiskStallAfter), int64(3 * time.Second), int64(time.Hour), span},
		{"max-address-connections", int64(c.MaxAddressConns), 1, 4096, number},
		{"max-address-streams", int64(c.MaxAddressStreams), 1, 1024, number},
		{"max-message-bytes", int64(c.MaxMessageBytes), 64 << 10, maxMessageBytes, bytes},
		{"max-module-bytes", int64(c.MaxModuleBytes), 64 << 10, maxModuleBytes, bytes},
		{"max-entity-in-flight", int64(c.MaxEntityInFlight), 1, 1 << 20, number},
		{"max-shard-in-flight", int64(c.MaxShardInFlight), 1, 1 << 20, number},
		{"max-stream-bytes", int64(c.MaxStreamBytes), 64 << 10, 1 << 30, bytes},
		{"max-waiting-bytes", int64(c.MaxWaitingBytes), int64(c.MaxMessageBytes), 1 << 40, bytes},
		{"max-outbox-sends", int64(c.MaxOutboxSends), 1, 1 << 30, number},
		{"max-outbox-bytes", int64(c.MaxOutboxBytes), 1 << 20, 1 << 40, bytes},
		{"timer-rate", int64(c.TimerRate), 1, 1_000_000, number},
		{"least-tick", int64(c.LeastTick), int64(100 * time.Millisecond), int64(time.Hour), span},
		{"default-deadline", int64(c.DefaultDeadline), int64(time.Millisecond), int64(5 * time.Minute), span},
		{"max-deadline", int64(c.MaxDeadline), int64(time.Millisecond), int64(5 * time.Minute), span},
		{"instance-memory-bytes", int64(c.InstanceMemoryBytes), minInstanceBytes, maxInstanceBytes, bytes},
		{"guest-memory-bytes", int64(c.GuestMemoryBytes), int64(c.InstanceMemoryBytes), 1 << 40, bytes},
		{"command-fuel", int64(c.CommandFuel), minFuel, maxFuel, number},
		{"query-fuel", int64(c.QueryFuel), minFuel, maxFuel, number},
		{"scrub-bytes-per-second", int64(c.ScrubBytesPerSecond), 64 << 10, 1 << 30, bytes},
		{"verify-rate", int64(c.VerifyRate), 0, 100_000_000, number},
		{"wal-segment-bytes", int64(c.WALSegmentBytes), minSegmentBytes, maxSegmentBytes, bytes},
		{"min-members", int64(c.MinMembers), 0, maxMembers, number},
		{"replication", int64(c.Replication), 1, maxReplication, number},
		{"dead-after", int64(c.DeadAfter), int64(10 * time.Second), int64(30 * 24 * time.Hour), span},
		{"silent-after", int64(c.SilentAfter), int64(200 * time.Millisecond), int64(time.Minute), span},
		{"lead-again-after", int64(c.LeadAgainAfter), int64(100 * time.Millisecond), int64(time.Hour), span},
		{"tick", int64(c.Tick), int64(10 * time.Millisecond), int64(10 * time.Second), span},
		{"rebalance-threshold", int64(c.RebalanceThreshold), 2, maxShards, number},
		{"rebalance-moves", int64(c.RebalanceMoves), 1, 1024, number},
		{"disk-warn-percent", int64(c.DiskWarnPercent), 0, 90, number},
		{"disk-read-only-percent", int64(c.DiskReadOnlyPercent), 0, 90, number},
		{"disk-read-only-bytes", int64(c.DiskReadOnlyBytes), 0, 1 << 40, bytes},
		{"disk-read-only-max-bytes", int64(c.DiskReadOnlyMax), 0, 1 << 50, bytes},
	}
}
