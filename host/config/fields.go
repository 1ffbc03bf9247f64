package config

import (
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"
)

// kindList is the kind of a field that the configuration file may give as a YAML
// sequence.
const kindList = "list"

// Field is one key of the configuration. It implements the value interface of
// the flag packages.
type Field struct {
	Name  string // the key, and the flag without its dashes
	Usage string // what the key sets, with its unit and its allowed values
	kind  string
	set   func(string) error
	show  func() string
}

// Section is a group of keys about one subject, as help texts and the reference
// list them.
type Section struct {
	Title  string
	Fields []Field
}

// Set parses text and assigns the value.
func (f Field) Set(text string) error { return f.set(text) }

// String returns the current value in the form that Set accepts. It returns
// "" for the zero Field, because flag packages call String on a zero value.
func (f Field) String() string {
	if f.show == nil {
		return ""
	}
	return f.show()
}

// Type returns the kind of value that help texts show.
func (f Field) Type() string { return f.kind }

// IsBoolFlag reports whether the flag may be given without a value.
func (f Field) IsBoolFlag() bool { return f.kind == "bool" }

// Fields returns every key, bound to c: setting a field changes c.
func (c *Config) Fields() []Field {
	var all []Field
	for _, s := range c.Sections() {
		all = append(all, s.Fields...)
	}
	return all
}

// Sections returns the keys by subject, bound to c: setting a field changes c.
func (c *Config) Sections() []Section {
	return []Section{
		{"Node", []Field{
			text("data-dir", "`directory` for the node's data; created if it does not exist", &c.DataDir),
			text("node-id", "permanent `name` of the node, [a-z0-9._-]; ignored once the data directory holds one", &c.NodeID),
			text("zone", "failure domain of the node, such as a rack or an availability zone, a `name` of [a-z0-9._-]; a shard's replicas are spread over zones if possible", &c.Zone),
			list("roles", "`role` of the node: host, or proxy, which routes requests and holds no shards", &c.Roles),
			number("executors", "`number` of goroutines that run entities; 0 means the number of CPUs minus one, but at least 1", &c.Executors),
			text("admin", "`mode` of the cluster API: read-only rejects calls that change the cluster, full allows them", &c.Admin),
			text("console", "serve the web console at /console/: `mode` on, off or auto, which serves it if only this machine can reach the node or auth is required", &c.Console),
			boolean("debug", "serve profiles of the process at /debug/pprof/ to callers on this machine", &c.Debug),
			duration("stop-timeout", "maximum `time` that a stopping node waits for requests in flight", &c.StopTimeout),
		}},
		{"Addresses", []Field{
			text("listen", "`address` to serve clients on, HOST:PORT; port 0 picks a free port", &c.Listen),
			text("advertise", "`address` at which clients reach the node, HOST:PORT; defaults to listen", &c.Advertise),
			text("peer-listen", "`address` to serve other nodes on, HOST:PORT; defaults to the host of listen and its port + 1", &c.PeerListen),
			text("peer-advertise", "`address` at which other nodes reach the node, HOST:PORT; defaults to the host of advertise and the port of peer-listen", &c.PeerAdvertise),
			text("health-listen", "additional `address` to serve health checks and metrics on, HOST:PORT, without TLS and authentication; unset means only on listen", &c.HealthListen),
			list("allow-hosts", "additional host `names` that requests may use for the node, such as a load balancer's; IP addresses, localhost and the host of advertise are always allowed; unset allows any name, unless only this machine can reach the node", &c.AllowHosts),
			list("allow-origins", "`origins` whose web pages may call the node, such as https://app.example, besides the node's own; * allows all origins and requires auth: required", &c.AllowOrigins),
			boolean("insecure-listen", "allow a client address that is not loopback, even if clients do not have to use TLS and to authenticate; the node logs a warning every minute", &c.InsecureListen),
			boolean("insecure-peers", "allow a peer address that is not loopback, even if nodes do not have to use TLS with each other; the node logs a warning every minute", &c.InsecurePeers),
		}},
		{"Cluster", []Field{
			text("cluster-name", "`label` of the cluster, [a-z0-9._-]; nodes ignore nodes that have a different label", &c.ClusterName),
			list("seeds", "`addresses` of the nodes to join through: the HOST:PORT on which they serve other nodes, with an IP address or a DNS name, or srv+NAME for DNS SRV records; a node without data and without seeds bootstraps a cluster of one", &c.Seeds),
			boolean("bootstrap", "bootstrap the cluster after every seed has answered that it belongs to none", &c.Bootstrap),
			number("bootstrap-expect", "bootstrap the cluster after this `number` of nodes is present and every seed has answered that it belongs to none; 0 leaves the decision to bootstrap", &c.BootstrapExpect),
			number("shards", "`number` of data shards, 1 to 4,096; fixed when the cluster is bootstrapped", &c.Shards),
			number("replication", "`number` of replicas of a shard, 1, 3, 5 or 7, if the cluster has enough nodes; applies when this node bootstraps the cluster", &c.Replication),
			number("min-members", "minimum `number` of hosts that must be up before shards are placed; 0 means the smaller of bootstrap-expect and replication; applies when this node bootstraps the cluster", &c.MinMembers),
			text("gossip-key-file", "`file` with the gossip encryption key, 16, 24 or 32 bytes in base64, identical on every node; unset leaves gossip unencrypted", &c.GossipKeyFile),
			duration("dead-after", "`time` after which an unreachable node is declared dead and its replicas are replaced; applies when this node bootstraps the cluster", &c.DeadAfter),
			duration("suspect-after", "`time` without a heartbeat after which other nodes suspect a node and take over its leaderships", &c.SuspectAfter),
			duration("leadership-cooldown", "`time` that a slow or returning node must stay healthy before it gets leaderships again; doubles with every recurrence, up to 60 times the value", &c.LeadershipCooldown),
			duration("raft-tick", "`time` of one tick of the raft groups' clocks; followers replace a leader that they have not heard from for 10 to 20 ticks", &c.RaftTick),
			number("rebalance-threshold", "rebalance if two nodes differ by this `number` of shards, at least 2", &c.RebalanceThreshold),
			number("rebalance-moves", "maximum `number` of shards that move concurrently", &c.RebalanceMoves),
		}},
		{"Authentication and audit", []Field{
			text("auth", "authentication of callers: `mode` none, allow (callers without a credential are anonymous) or required", &c.Auth),
			text("token-file", "`file` with the hashes of static tokens, one a line, as 'hostd token create --file' appends them; read again when it changes; cannot be set in the environment, because HOSTD_TOKEN_FILE is the command line's own token", &c.TokenFile),
			text("auth-cert-name", "`name` in a client certificate that identifies callers without a token: cn (of the subject), san-uri or san-dns; unset means that certificates do not identify callers", &c.AuthCertName),
			text("auth-bootstrap-file", "`file` that names the first admin: one line, name:sha256hex of a token, or admin SUBJECT; read only while there is no admin", &c.AuthBootstrapFile),
			text("oidc-issuer", "`URL` of the OpenID Connect provider whose signed tokens identify callers", &c.OIDCIssuer),
			text("oidc-audience", "`name` that the audiences of an OIDC token must include", &c.OIDCAudience),
			list("oidc-authorized-parties", "`clients`, besides oidc-audience, to which an OIDC token may have been issued (claim azp); * allows all", &c.OIDCAuthorizedParties),
			text("oidc-name-claim", "`claim` of an OIDC token with the caller's name", &c.OIDCNameClaim),
			text("oidc-groups-claim", "`claim` of an OIDC token with the caller's groups", &c.OIDCGroupsClaim),
			text("jwt-keys-file", "`file` with the signing keys of oidc-issuer, a JSON Web Key Set; read again when it changes; if set, the node does not fetch keys from the provider", &c.JWTKeysFile),
			text("audit", "calls to record in the audit log: `mode` off, changes (changes and rejected calls) or all; defaults to changes if auth is not none, and to off otherwise", &c.Audit),
			text("audit-file", "`file` of the audit log; defaults to audit/audit.log in data-dir", &c.AuditFile),
			text("audit-failure", "reaction if the audit log cannot be written: `mode` deny-changes (reject changes) or continue", &c.AuditFailure),
		}},
		{"TLS", []Field{
			text("tls-mode", "TLS of clients: `mode` off, allow (clients may use it or not) or require; defaults to require if tls-cert-file is set, and to off otherwise", &c.TLSMode),
			text("tls-cert-file", "`file` with the node's certificate for clients and the chain to its authority, in PEM; read again when it changes", &c.TLSCertFile),
			text("tls-key-file", "`file` with the private key of tls-cert-file, in PEM; read again when it changes", &c.TLSKeyFile),
			text("tls-client-ca-file", "`file` with the certificate authorities of clients, in PEM; read again when it changes", &c.TLSClientCAFile),
			text("tls-client-auth", "client certificates from an authority in tls-client-ca-file: `mode` none, optional or require; defaults to optional if tls-client-ca-file is set, and to none otherwise", &c.TLSClientAuth),
			text("peer-tls-mode", "TLS between nodes: `mode` off, allow (nodes use it with each other if both can) or require; defaults to off", &c.PeerTLSMode),
			text("peer-cert-file", "`file` with the node's certificate for other nodes and the chain to its authority, in PEM; read again when it changes", &c.PeerCertFile),
			text("peer-key-file", "`file` with the private key of peer-cert-file, in PEM; read again when it changes", &c.PeerKeyFile),
			text("peer-ca-file", "`file` with the certificate authorities of nodes, in PEM; read again when it changes", &c.PeerCAFile),
			text("peer-crl-file", "`file` with the certificate revocation lists of the authorities in peer-ca-file, several in PEM or one in DER; read again when it changes", &c.PeerCRLFile),
		}},
		{"Modules and guests", []Field{
			text("module-trust-file", "`file` with the public keys that the node accepts module signatures from, one a line; read again when it changes", &c.ModuleTrustFile),
			text("module-signatures", "handling of modules without a trusted signature: `mode` off (accept), warn, or require (reject uploads and do not serve them)", &c.ModuleSignatures),
			bytesField("instance-memory-bytes", "maximum `size` of a module instance's memory, up to 256MiB", &c.InstanceMemoryBytes),
			bytesField("guest-memory-bytes", "maximum `size` of the memory of all module instances together; the node evicts entities above it", &c.GuestMemoryBytes),
			number("command-fuel", "maximum fuel of a command in `units` of about 0.1 to 0.25 ns, 100,000 to 2,000,000,000", &c.CommandFuel),
			number("query-fuel", "maximum fuel of a query in `units` of about 0.1 to 0.25 ns, 100,000 to 2,000,000,000", &c.QueryFuel),
			number("timer-rate", "maximum `number` of timers that fire a second while the node also has commands to run; the node exceeds it if it is idle", &c.TimerRate),
			duration("min-schedule-interval", "minimum `time` between two ticks of a schedule; shorter periods are raised to it", &c.MinScheduleInterval),
			number("verify-rate", "maximum `number` of events that the verification of a module replays a second on this node, where an entity counts as 20 more; 0 is unlimited; verification always yields to requests that wait for an executor", &c.VerifyRate),
			boolean("expose-guest-errors", "include what a guest wrote before it failed, such as the text of a panic, in errors to callers; it may hold data that the guest was sent; the log and an entity's lastError always have it", &c.ExposeGuestErrors),
		}},
		{"Requests", []Field{
			number("max-address-connections", "maximum `number` of connections from one IPv4 address or IPv6 /64 network, out of the node's 4,096", &c.MaxAddressConns),
			number("max-address-streams", "maximum `number` of long-lived streams from one IPv4 address or IPv6 /64 network, out of the node's 1,024", &c.MaxAddressStreams),
			bytesField("max-message-bytes", "maximum `size` of a request; max-module-bytes applies to uploaded modules", &c.MaxMessageBytes),
			bytesField("max-module-bytes", "maximum `size` of an uploaded module", &c.MaxModuleBytes),
			number("max-entity-in-flight", "maximum `number` of commands that wait for one entity; the node rejects more", &c.MaxEntityInFlight),
			number("max-shard-in-flight", "maximum `number` of commands that wait for one shard; the node rejects more", &c.MaxShardInFlight),
			bytesField("max-stream-bytes", "maximum `size` of the unanswered commands of one stream; the node stops reading the stream at it", &c.MaxStreamBytes),
			bytesField("max-waiting-bytes", "maximum `size` of all requests that wait on the node; the node rejects more", &c.MaxWaitingBytes),
			number("max-outbox-messages", "maximum `number` of undelivered messages from the shards that the node leads, twice as many for messages that follow from messages; the node rejects commands that would exceed it", &c.MaxOutboxMessages),
			bytesField("max-outbox-bytes", "maximum `size` of undelivered messages from the shards that the node leads, twice as much for messages that follow from messages; the node rejects commands that would exceed it", &c.MaxOutboxBytes),
			duration("default-deadline", "deadline of a call that sets none, a `time`", &c.DefaultDeadline),
			duration("max-deadline", "maximum deadline of a call, a `time`", &c.MaxDeadline),
		}},
		{"Storage", []Field{
			bytesField("wal-segment-bytes", "`size` of one segment of the write-ahead log; the node keeps a few segments", &c.WALSegmentBytes),
			duration("disk-stall-after", "exit the process if the disk of the write-ahead log has not answered for this `time`", &c.DiskStallAfter),
			number("disk-warn-percent", "warn if less than this `percent` of the disk is free", &c.DiskWarnPercent),
			number("disk-read-only-percent", "reject writes if less than this `percent` of the disk is free", &c.DiskReadOnlyPercent),
			bytesField("disk-read-only-bytes", "reject writes if less than this `size` of the disk is free", &c.DiskReadOnlyBytes),
			bytesField("disk-read-only-max-bytes", "upper bound of the `size` that disk-read-only-percent stands for", &c.DiskReadOnlyMax),
			bytesField("scrub-bytes-per-second", "`size` of the store's tables that the node verifies a second in the background", &c.ScrubBytesPerSecond),
		}},
		{"Logs and traces", []Field{
			logLevel("log-level", "minimum `level` of log lines: debug, info, warn or error", &c.LogLevel),
			text("log-format", "`format` of log lines: auto (text on a terminal, JSON otherwise), text or json", &c.LogFormat),
			text("otlp-endpoint", "`URL` of the collector to send spans to by OTLP over HTTP, such as http://127.0.0.1:4318; the path defaults to /v1/traces; unset means that no spans are recorded", &c.OTLPEndpoint),
			text("otlp-headers-file", "`file` with HTTP headers for otlp-endpoint, one NAME: VALUE a line", &c.OTLPHeadersFile),
			fraction("trace-ratio", "`fraction` of the calls without a trace of their own that are traced, 0 to 1", &c.TraceRatio),
			boolean("trace-trust-remote", "let a caller's traceparent header decide whether a call is traced and in which trace; if false, each call starts a trace of its own that links to the caller's", &c.TraceTrustRemote),
		}},
	}
}

func text[T ~string](name, usage string, p *T) Field {
	return Field{name, usage, "string", func(s string) error { *p = T(s); return nil }, func() string { return string(*p) }}
}

// list returns a field of comma-separated values. Setting it replaces all of them.
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

// Bytes is a size. Its text form is a number of bytes, or a number followed by
// KiB, MiB or GiB.
type Bytes int64

var byteUnits = []struct {
	suffix string
	bytes  Bytes
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// ParseBytes parses the text form of a size, as Bytes.String writes it.
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
