// Package config is a node's configuration: its keys with their defaults and
// units, and the three sources of their values. A key has the same name in each:
// `max-entity-in-flight` in the file, HOSTD_MAX_ENTITY_IN_FLIGHT in the
// environment and --max-entity-in-flight on the command line. The package opens
// only the configuration file and, on request, the file of the gossip key, and
// it starts no goroutines.
package config

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hostd/hostd/sharding"
)

// Admin is the access that the cluster service allows.
type Admin string

// The values of Config.Admin.
const (
	AdminReadOnly Admin = "read-only"
	AdminFull     Admin = "full"
)

// Auth says whether callers have to authenticate.
type Auth string

// The values of Config.Auth.
const (
	AuthNone     Auth = "none"     // no authentication
	AuthAllow    Auth = "allow"    // credentials are checked, and callers without one are anonymous
	AuthRequired Auth = "required" // callers without a credential are rejected
)

// Audit says which calls a node records in its audit log.
type Audit string

// The values of Config.Audit. The empty value means AuditChanges if callers are
// authenticated, and AuditOff otherwise.
const (
	AuditOff     Audit = "off"
	AuditChanges Audit = "changes" // changes, and rejected calls
	AuditAll     Audit = "all"
)

// AuditFailure says what happens to a change if the audit log cannot be written.
type AuditFailure string

// The values of Config.AuditFailure.
const (
	AuditDenyChanges AuditFailure = "deny-changes"
	AuditContinue    AuditFailure = "continue"
)

// ModuleSignatures says how a node treats modules without a trusted signature.
type ModuleSignatures string

// The values of Config.ModuleSignatures.
const (
	SignaturesOff     ModuleSignatures = "off"     // accept them
	SignaturesWarn    ModuleSignatures = "warn"    // accept them and log a warning
	SignaturesRequire ModuleSignatures = "require" // reject uploads and do not serve them
)

// LogFormat is the format of log lines.
type LogFormat string

// The values of Config.LogFormat.
const (
	LogAuto LogFormat = "auto" // text on a terminal, JSON otherwise
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// Config holds the configuration of a node. The zero value is not usable: start
// from Default. Sections documents the meaning and the unit of each key.
type Config struct {
	DataDir        string
	Listen         string
	PeerListen     string
	HealthListen   string
	InsecureListen bool
	InsecurePeers  bool
	NodeID         sharding.NodeID
	Shards         uint32
	Executors      int
	Admin          Admin
	Console        Console
	LogLevel       slog.Level
	LogFormat      LogFormat
	StopTimeout    time.Duration
	DiskStallAfter time.Duration

	Auth         Auth
	TokenFile    string
	AuthCertName CertName
	// AuthBootstrapFile names the first admin.
	AuthBootstrapFile string
	OIDCIssuer        string
	OIDCAudience      string
	// OIDCAuthorizedParties are the clients, besides the audience, to which a token
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
	TraceRatio       float64 // fraction of the calls that start a trace here, from 0 to 1
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
	SuspectAfter       time.Duration
	LeadershipCooldown time.Duration
	RaftTick           time.Duration
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
	MaxOutboxMessages   int
	MaxOutboxBytes      Bytes
	DefaultDeadline     time.Duration
	MaxDeadline         time.Duration
	InstanceMemoryBytes Bytes
	GuestMemoryBytes    Bytes
	TimerRate           int
	MinScheduleInterval time.Duration
	ExposeGuestErrors   bool
	Debug               bool
	CommandFuel         int
	QueryFuel           int
	WALSegmentBytes     Bytes
	ScrubBytesPerSecond Bytes
	VerifyRate          int // events a second; 0 is unlimited
	DiskWarnPercent     int
	DiskReadOnlyPercent int
	DiskReadOnlyBytes   Bytes // lower bound of the threshold
	DiskReadOnlyMax     Bytes // upper bound of the percentage, in bytes

	// CompileProgram is the path of a program that calls guest.CompileChild when
	// it is run with the single argument compile-module. It is not a key: the hostd
	// program sets it to its own path. If it is empty, the node compiles modules in
	// its own process, where a hostile module can use a CPU for minutes.
	CompileProgram string
}

// Default returns the default configuration.
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
		SuspectAfter:       700 * time.Millisecond,
		LeadershipCooldown: 10 * time.Second,
		RaftTick:           100 * time.Millisecond,
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
		MaxOutboxMessages:   1 << 18,
		MaxOutboxBytes:      1 << 30,
		DefaultDeadline:     5 * time.Second,
		MaxDeadline:         30 * time.Second,
		InstanceMemoryBytes: 64 << 20,
		GuestMemoryBytes:    2 << 30,
		TimerRate:           10_500,
		MinScheduleInterval: time.Second,
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

// Bounds of the values that keys accept.
const (
	maxShards         = 4096
	maxExecutors      = 256
	maxMessageBytes   = 64 << 20
	maxModuleBytes    = 32 << 20
	maxInstanceBytes  = 256 << 20
	minInstanceBytes  = 1 << 20
	wasmPageBytes     = 64 << 10
	minSegmentBytes   = 8 << 20 // fits the largest log record twice
	maxSegmentBytes   = 1 << 30
	minFuel           = 100_000       // 10 to 25 microseconds of a core
	maxFuel           = 2_000_000_000 // about half a second of a core
	segmentBlockBytes = 4096
)

// Validate returns all faults joined. Each fault names the key, the fault of
// its value and the allowed values.
func (c *Config) Validate() error {
	var faults []error
	fault := func(key, format string, args ...any) {
		faults = append(faults, fmt.Errorf(key+": "+format, args...))
	}
	if c.DataDir == "" {
		fault("data-dir", "must not be empty")
	}
	if err := checkName(string(c.NodeID)); err != nil {
		fault("node-id", "%w", err)
	}
	c.checkAddresses(fault)
	c.checkExposure(fault)
	c.checkAuth(fault)
	c.checkConsole(fault)
	c.checkTraces(fault)
	c.checkAudit(fault)
	c.checkModules(fault)
	c.checkCluster(fault)
	c.checkTLS(fault)
	c.checkPeerTLS(fault)
	if c.Admin != AdminReadOnly && c.Admin != AdminFull {
		fault("admin", "must be %s or %s, got %q", AdminReadOnly, AdminFull, c.Admin)
	}
	if c.LogFormat != LogAuto && c.LogFormat != LogText && c.LogFormat != LogJSON {
		fault("log-format", "must be %s, %s or %s, got %q", LogAuto, LogText, LogJSON, c.LogFormat)
	}
	for _, r := range c.ranges() {
		if r.value < r.low || r.value > r.high {
			fault(r.key, "must be between %s and %s, got %s", r.show(r.low), r.show(r.high), r.show(r.value))
		}
	}
	if c.InstanceMemoryBytes%wasmPageBytes != 0 {
		fault("instance-memory-bytes", "must be a multiple of %s, got %s", Bytes(wasmPageBytes), c.InstanceMemoryBytes)
	}
	if c.WALSegmentBytes%segmentBlockBytes != 0 {
		fault("wal-segment-bytes", "must be a multiple of %s, got %s", Bytes(segmentBlockBytes), c.WALSegmentBytes)
	}
	if c.DefaultDeadline > c.MaxDeadline {
		fault("default-deadline", "must not exceed max-deadline, which is %s, got %s", c.MaxDeadline, c.DefaultDeadline)
	}
	if c.SuspectAfter < 2*c.RaftTick {
		fault("suspect-after", "must be at least twice raft-tick, which is %s, got %s", c.RaftTick, c.SuspectAfter)
	}
	if c.DiskReadOnlyPercent > c.DiskWarnPercent {
		fault("disk-read-only-percent", "must not exceed disk-warn-percent, which is %d, got %d", c.DiskWarnPercent, c.DiskReadOnlyPercent)
	}
	return errors.Join(faults...)
}

// bound is the allowed range of one numeric key.
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
		{"executors", int64(c.Executors), 0, maxExecutors, number},
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
		{"max-outbox-messages", int64(c.MaxOutboxMessages), 1, 1 << 30, number},
		{"max-outbox-bytes", int64(c.MaxOutboxBytes), 1 << 20, 1 << 40, bytes},
		{"timer-rate", int64(c.TimerRate), 1, 1_000_000, number},
		{"min-schedule-interval", int64(c.MinScheduleInterval), int64(100 * time.Millisecond), int64(time.Hour), span},
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
		{"suspect-after", int64(c.SuspectAfter), int64(200 * time.Millisecond), int64(time.Minute), span},
		{"leadership-cooldown", int64(c.LeadershipCooldown), int64(100 * time.Millisecond), int64(time.Hour), span},
		{"raft-tick", int64(c.RaftTick), int64(10 * time.Millisecond), int64(10 * time.Second), span},
		{"rebalance-threshold", int64(c.RebalanceThreshold), 2, maxShards, number},
		{"rebalance-moves", int64(c.RebalanceMoves), 1, 1024, number},
		{"disk-warn-percent", int64(c.DiskWarnPercent), 0, 90, number},
		{"disk-read-only-percent", int64(c.DiskReadOnlyPercent), 0, 90, number},
		{"disk-read-only-bytes", int64(c.DiskReadOnlyBytes), 0, 1 << 40, bytes},
		{"disk-read-only-max-bytes", int64(c.DiskReadOnlyMax), 0, 1 << 50, bytes},
	}
}
