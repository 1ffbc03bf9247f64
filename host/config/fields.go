package config

import (
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"
)

// kindList is the kind of a field that may be a sequence in the file.
const kindList = "list"

// Field is one key of the configuration. It has the methods that flag
// packages want of a value.
type Field struct {
	Name  string // the key, and the flag without its dashes
	Usage string // meaning, with unit and bounds where the type does not say
	kind  string
	set   func(string) error
	show  func() string
}

// Set parses and assigns.
func (f Field) Set(text string) error { return f.set(text) }

// String returns the present value in the form that Set reads. It is empty for
// the zero Field, which flag packages ask about.
func (f Field) String() string {
	if f.show == nil {
		return ""
	}
	return f.show()
}

// Type names the kind of value in help texts.
func (f Field) Type() string { return f.kind }

// IsBoolFlag lets a boolean flag stand without a value.
func (f Field) IsBoolFlag() bool { return f.kind == "bool" }

// Fields returns every key, bound to c: setting one changes c.
func (c *Config) Fields() []Field {
	return []Field{
		text("data-dir", "`directory` of the node's data; made if it is missing", &c.DataDir),
		text("listen", "`address` HOST:PORT where clients are served; port 0 takes a free one", &c.Listen),
		text("peer-listen", "`address` HOST:PORT where other nodes are served; the host of listen and its port + 1 unless it is given", &c.PeerListen),
		text("health-listen", "`address` HOST:PORT where the node answers how it is and what it counts, without TLS and to everybody; nowhere but on listen unless it is given", &c.HealthListen),
		boolean("insecure-listen", "allow addresses for clients that are not loopback although not every client has to speak TLS and to say who it is; warns every minute", &c.InsecureListen),
		boolean("insecure-peers", "allow addresses for other nodes that are not loopback although nodes need not speak TLS to each other; warns every minute", &c.InsecurePeers),
		text("node-id", "`name` of the node, for ever, [a-z0-9._-]; taken from the data directory once it exists", &c.NodeID),
		number("shards", "data `shards` of a cluster, fixed when it is created, 1 to 4,096", &c.Shards),
		number("lanes", "`goroutines` that run entities; 0 is one less than the CPUs, at least 1", &c.Lanes),
		text("admin", "what the cluster service allows, `mode` read-only or full", &c.Admin),
		text("console", "whether the web console is served at /console/, `mode` on, off or auto: where the node is reached from this machine alone, or auth is required", &c.Console),
		logLevel("log-level", "least `level` that is logged: debug, info, warn or error", &c.LogLevel),
		text("log-format", "`format` of log lines: auto (text on a terminal, JSON otherwise), text or json", &c.LogFormat),
		duration("stop-timeout", "`time` a stopping node gives what is in flight", &c.StopTimeout),
		duration("disk-stall-after", "end the process when the disk of the write-ahead log has not answered for this `time`", &c.DiskStallAfter),

		text("auth", "whether callers must say who they are, `mode` none, allow (those without a credential are let in) or required", &c.Auth),
		text("token-file", "`file` with the hashes of static tokens, a line for each, as 'hostd token create --file' adds them, read again when it changes; not read from the environment, where HOSTD_TOKEN_FILE is the command line's own token", &c.TokenFile),
		text("auth-cert-name", "which `name` of a client's certificate is its bearer's, for callers without a token: cn (of the subject), san-uri or san-dns; without it certificates are no credential", &c.AuthCertName),
		text("auth-bootstrap-file", "`file` of one line that says who is admin first, name:sha256hex of a token or admin SUBJECT; looked at while nobody is admin", &c.AuthBootstrapFile),
		text("oidc-issuer", "`URL` of an OpenID Connect provider whose signed tokens are taken", &c.OIDCIssuer),
		text("oidc-audience", "`name` that must be among the audiences of such a token", &c.OIDCAudience),
		list("oidc-authorized-parties", "`clients` besides oidc-audience whose tokens for it are taken: a token that says by azp to which client it was issued names one of them; * is all", &c.OIDCAuthorizedParties),
		text("oidc-name-claim", "`claim` of such a token that names its bearer", &c.OIDCNameClaim),
		text("oidc-groups-claim", "`claim` of such a token that lists its bearer's groups", &c.OIDCGroupsClaim),
		text("jwt-keys-file", "`file` with the keys of oidc-issuer, a JSON Web Key Set, read again when it changes; the provider is not asked then", &c.JWTKeysFile),
		text("audit", "which calls have a line in the audit log, `mode` off, changes (and what is refused) or all; changes where auth is not none, and off otherwise, unless it is given", &c.Audit),
		text("audit-file", "`file` of the audit log; audit/audit.log in data-dir unless it is given", &c.AuditFile),
		text("audit-failure", "what a change comes to that has no line in the audit log, `mode` deny-changes or continue", &c.AuditFailure),
		text("module-trust-file", "`file` with the public keys whose signatures of modules count, a line for each, read again when it changes", &c.ModuleTrustFile),
		text("module-signatures", "what becomes of modules that none of the trusted keys has signed, `mode` off (nothing), warn or require (they are neither taken nor served)", &c.ModuleSignatures),

		text("otlp-endpoint", "`URL` of a collector that takes spans by OTLP over HTTP, such as http://127.0.0.1:4318; /v1/traces unless it has a path; none are made without it", &c.OTLPEndpoint),
		text("otlp-headers-file", "`file` with headers for it, a line NAME: VALUE for each", &c.OTLPHeadersFile),
		fraction("trace-ratio", "`part` of the calls without a trace of their caller's that are traced, 0 to 1", &c.TraceRatio),
		boolean("trace-trust-remote", "let callers' header traceparent decide what is traced, and in which trace; otherwise a call begins its own, with a link to it", &c.TraceTrustRemote),

		list("seeds", "`addresses` HOST:PORT of nodes to join through, where they serve other nodes, names of DNS too, or srv+NAME, whose records SRV have them; a node without data and without seeds founds a cluster of one", &c.Seeds),
		boolean("bootstrap", "found the cluster when each of the seeds has answered that it has none", &c.Bootstrap),
		number("bootstrap-expect", "found the cluster when this `number` of nodes is there and each of the seeds has answered that it has none; 0 leaves it to bootstrap", &c.BootstrapExpect),
		text("advertise", "`address` HOST:PORT that the clients reach; listen unless it is given", &c.Advertise),
		text("peer-advertise", "`address` HOST:PORT that the other nodes reach; the host of advertise and the port of peer-listen unless it is given", &c.PeerAdvertise),
		list("allow-hosts", "`names` by which the node may be called besides IP addresses, localhost and advertise, such as a load balancer's; without any, and where others than this machine reach the node, it may be by every name", &c.AllowHosts),
		list("allow-origins", "`origins` whose pages in a browser may call the node, such as https://app.example, beside its own; * is all, where callers must say who they are", &c.AllowOrigins),
		text("cluster-name", "`label` of the cluster, [a-z0-9._-]; nodes with different ones do not hear each other", &c.ClusterName),
		text("gossip-key-file", "`file` with the key of the gossip, 16, 24 or 32 bytes in base64, the same on every node; none leaves it readable", &c.GossipKeyFile),
		text("tls-mode", "whether clients speak TLS, `mode` off, allow (with or without it) or require; require when there is a tls-cert-file, and off otherwise, unless it is given", &c.TLSMode),
		text("tls-cert-file", "`file` with the node's certificate for clients, and the chain to its authority, in PEM; read again when it changes", &c.TLSCertFile),
		text("tls-key-file", "`file` with the key of tls-cert-file, in PEM; read again when it changes", &c.TLSKeyFile),
		text("tls-client-ca-file", "`file` with the authorities of the clients' certificates, one after the other, in PEM; read again when it changes", &c.TLSClientCAFile),
		text("tls-client-auth", "whether clients show a certificate of an authority in tls-client-ca-file, `mode` none, optional or require; optional when there is a tls-client-ca-file, and none otherwise, unless it is given", &c.TLSClientAuth),
		text("peer-tls-mode", "whether nodes speak TLS to each other, `mode` off, allow (with it, and without it to and from those that do not) or require; off unless it is given", &c.PeerTLSMode),
		text("peer-cert-file", "`file` with the node's certificate for other nodes, and the chain to its authority, in PEM; read again when it changes", &c.PeerCertFile),
		text("peer-key-file", "`file` with the key of peer-cert-file, in PEM; read again when it changes", &c.PeerKeyFile),
		text("peer-ca-file", "`file` with the authorities of the nodes' certificates, one after the other, in PEM; read again when it changes", &c.PeerCAFile),
		text("peer-crl-file", "`file` with the certificates of nodes that an authority in peer-ca-file has revoked, lists in PEM or one in DER; read again when it changes", &c.PeerCRLFile),
		list("roles", "what the node takes on, `role` host or proxy: a proxy routes and holds no shards", &c.Roles),
		text("zone", "`name` of what fails together, [a-z0-9._-]; the replicas of a shard are kept in different ones where that is possible", &c.Zone),
		number("min-members", "place no shard before this `number` of hosts is up, in a cluster that this one founds; 0: bootstrap-expect, and no more than replication", &c.MinMembers),
		number("replication", "replicas of a shard, a `number` of 1, 3, 5 or 7, as far as there are nodes, in a cluster that this one founds", &c.Replication),
		duration("dead-after", "replace the replicas of a node that was unreachable for this `time`, in a cluster that this one founds", &c.DeadAfter),
		duration("silent-after", "other nodes take over from a node of which nothing was heard for this `time`", &c.SilentAfter),
		duration("lead-again-after", "a node that was slow, or came back, is given leaderships again after this quiet `time`, twice it the next time, 60 times at most", &c.LeadAgainAfter),
		duration("tick", "`time` of a step of the raft groups' clocks; a leader that is not heard for 10 to 20 of them is replaced", &c.Tick),
		number("rebalance-threshold", "even out when two nodes differ by this `number` of shards, at least 2", &c.RebalanceThreshold),
		number("rebalance-moves", "shards that move at a time, a `number`", &c.RebalanceMoves),

		number("max-address-connections", "`connections` of one IP address, or of 64 bits of IPv6, of the node's 4,096", &c.MaxAddressConns),
		number("max-address-streams", "`streams` that last of one IP address, or of 64 bits of IPv6, of the node's 1,024", &c.MaxAddressStreams),
		bytesField("max-message-bytes", "`size` of one request; modules have their own limit", &c.MaxMessageBytes),
		bytesField("max-module-bytes", "`size` of an uploaded module", &c.MaxModuleBytes),
		number("max-entity-in-flight", "`commands` waiting on one entity; more are refused", &c.MaxEntityInFlight),
		number("max-shard-in-flight", "`commands` waiting on one shard; more are refused", &c.MaxShardInFlight),
		bytesField("max-stream-bytes", "`size` of what one stream of commands has read and unanswered; it is read no further there", &c.MaxStreamBytes),
		bytesField("max-waiting-bytes", "`size` of all requests that wait on the node; more are refused", &c.MaxWaitingBytes),
		number("max-outbox-sends", "`sends` on their way from the shards that the node leads, twice as many where sends lead to sends; commands with more are refused", &c.MaxOutboxSends),
		bytesField("max-outbox-bytes", "`size` of the sends on their way from the shards that the node leads, twice as much if sends lead to sends; commands with more are refused", &c.MaxOutboxBytes),
		number("timer-rate", "`timers` that may fire in a second on the node beside commands; more do when there are none", &c.TimerRate),
		boolean("debug", "serve profiles of the process at /debug/pprof/ to callers on this machine", &c.Debug),
		boolean("tell-faults", "tell callers what a guest wrote before it failed, such as the text of a panic, which may hold what it was sent; lastError and the log have it in any case", &c.TellFaults),
		duration("least-tick", "shortest `time` between two ticks of a schedule; shorter periods count as this", &c.LeastTick),
		duration("default-deadline", "`time` a call without a deadline gets", &c.DefaultDeadline),
		duration("max-deadline", "longest deadline a call may have, a `time`", &c.MaxDeadline),
		bytesField("instance-memory-bytes", "`size` a module instance's memory may grow to, up to 256MiB", &c.InstanceMemoryBytes),
		bytesField("guest-memory-bytes", "`size` of the memory of all module instances together; states are evicted above it", &c.GuestMemoryBytes),
		number("command-fuel", "`units` of fuel that a command may spend, of 0.1 to 0.25 ns mostly, 100,000 to 2,000,000,000", &c.CommandFuel),
		number("query-fuel", "`units` of fuel that a query may spend, of 0.1 to 0.25 ns mostly, 100,000 to 2,000,000,000", &c.QueryFuel),
		bytesField("wal-segment-bytes", "`size` of one write-ahead log file; a few are kept", &c.WALSegmentBytes),
		bytesField("scrub-bytes-per-second", "`size` of the store's tables that are read and verified in a second in the background", &c.ScrubBytesPerSecond),
		number("verify-rate", "`events` that a verification of a module replays in a second on this node, an entity counts as 20 more; 0 is as many as it can; it waits while requests wait for lanes, too", &c.VerifyRate),
		number("disk-warn-percent", "warn when less than this `percent` of the disk is free", &c.DiskWarnPercent),
		number("disk-read-only-percent", "refuse writes when less than this `percent` of the disk is free", &c.DiskReadOnlyPercent),
		bytesField("disk-read-only-bytes", "refuse writes when less than this `size` of the disk is free", &c.DiskReadOnlyBytes),
		bytesField("disk-read-only-max-bytes", "let disk-read-only-percent come to no more than this `size`", &c.DiskReadOnlyMax),
	}
}

func text[T ~string](name, usage string, p *T) Field {
	return Field{name, usage, "string", func(s string) error { *p = T(s); return nil }, func() string { return string(*p) }}
}

// list is several values with commas between them. Setting it replaces all.
func list[T ~string](name, usage string, p *[]T) Field {
	return Field{name, usage, kindList, func(s string) error {
		*p = nil
		for item := range strings.SplitSeq(s, ",") {
			if item = strings.TrimSpace(item); item != "" {
				*p = append(*p, T(item))
			}
		}
		return nil
	}, func() string {
		items := make([]string, len(*p))
		for i, item := range *p {
			items[i] = string(item)
		}
		return strings.Join(items, ",")
	}}
}

func boolean(name, usage string, p *bool) Field {
	return Field{name, usage, "bool", func(s string) error {
		v, err := strconv.ParseBool(s)
		if err != nil {
			return fmt.Errorf("%q is not true or false", s)
		}
		*p = v
		return nil
	}, func() string { return strconv.FormatBool(*p) }}
}

func number[T ~int | ~uint32](name, usage string, p *T) Field {
	return Field{name, usage, "int", func(s string) error {
		v, err := strconv.ParseInt(s, 10, 32)
		if err != nil || T(v) < 0 || int64(T(v)) != v {
			return fmt.Errorf("%q is not a whole number from 0 to %d", s, math.MaxInt32)
		}
		*p = T(v)
		return nil
	}, func() string { return fmt.Sprint(*p) }}
}

func duration(name, usage string, p *time.Duration) Field {
	return Field{name, usage, "duration", func(s string) error {
		v, err := time.ParseDuration(s)
		if err != nil {
			return fmt.Errorf("%q is not a duration such as 500ms or 5s", s)
		}
		*p = v
		return nil
	}, func() string { return p.String() }}
}

func logLevel(name, usage string, p *slog.Level) Field {
	return Field{name, usage, "string", func(s string) error {
		if err := p.UnmarshalText([]byte(s)); err != nil {
			return fmt.Errorf("%q is not debug, info, warn or error", s)
		}
		return nil
	}, func() string { return strings.ToLower(p.String()) }}
}

func bytesField(name, usage string, p *Bytes) Field {
	return Field{name, usage, "size", func(s string) error {
		v, err := ParseBytes(s)
		if err != nil {
			return err
		}
		*p = v
		return nil
	}, func() string { return p.String() }}
}

// Bytes is a size. It is written as a number of bytes or with KiB, MiB or GiB
// after it.
type Bytes int64

var byteUnits = []struct {
	suffix string
	bytes  Bytes
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// ParseBytes reads what Bytes.String writes.
func ParseBytes(s string) (Bytes, error) {
	digits, unit := s, Bytes(1)
	for _, u := range byteUnits {
		if rest, ok := strings.CutSuffix(s, u.suffix); ok {
			digits, unit = strings.TrimSpace(rest), u.bytes
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/int64(unit) {
		return 0, fmt.Errorf("%q is not a size such as 65536, 64KiB, 16MiB or 1GiB", s)
	}
	return Bytes(n) * unit, nil
}

// String uses the largest unit that divides the size.
func (b Bytes) String() string {
	for _, u := range byteUnits {
		if b != 0 && b%u.bytes == 0 {
			return fmt.Sprintf("%d%s", b/u.bytes, u.suffix)
		}
	}
	return strconv.FormatInt(int64(b), 10)
}
