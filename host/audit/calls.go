package audit

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	authv1 "github.com/hostd/hostd/api/gen/hostd/auth/v1"
	"github.com/hostd/hostd/host/authn"
	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/host/procedure"
)

// Calls writes audit lines about calls. It is safe for concurrent use.
//
// A change gets two lines. The first one is synced to disk before the change is
// made, so that there is no change without a line: if the line cannot be
// written, the change is rejected, unless Continue is set. The second line
// contains the outcome, and the caller does not wait for it. A rejected call
// gets only a line with the outcome, and so does a read if All is set.
//
// Calls therefore needs two interceptors. Outcomes is the outermost
// interceptor, because it has to see rejections by every other interceptor.
// Changes comes after all interceptors that may reject a call, because a
// rejected change must not get a line that says that it is about to be made.
type Calls struct {
	log     *Log
	opts    CallOptions
	verbs   map[string]verb // by procedure
	refused refusals
}

// verb is the verb of an rpc, and its name in lines.
type verb struct {
	is   authv1.Verb
	text string
}

// CallOptions configures Calls.
type CallOptions struct {
	// Services are the services whose calls are audited. Every rpc needs a
	// verb.
	Services []protoreflect.ServiceDescriptor
	// All audits every call. Otherwise only changes and rejected calls are audited.
	All bool
	// Continue allows changes although their line cannot be written. Otherwise
	// such changes are rejected with the code unavailable.
	Continue bool
	// Passed returns the node that forwarded a call, and the caller that it
	// names. The node is empty if a client made the call. The caller is nil if
	// the forwarding node doesn't authenticate callers. Required.
	Passed func(ctx context.Context) (node string, caller *principal.Principal)
}

// errUnwritten is the error for changes that the log could not record.
var errUnwritten = errors.New("the call was rejected and had no effect, because the node cannot write its audit log")

// NewCalls returns Calls that write to log.
func NewCalls(log *Log, o CallOptions) *Calls {
	c := &Calls{log: log, opts: o, verbs: map[string]verb{}}
	for _, s := range o.Services {
		for i := range s.Methods().Len() {
			m := s.Methods().Get(i)
			v := procedure.VerbOf(m)
			c.verbs[procedure.PathOf(m)] = verb{v, strings.ToLower(v.String())}
		}
	}
	return c
}

// changes reports whether calls with this verb are always audited.
func changes(v authv1.Verb) bool {
	switch v {
	case authv1.Verb_OPERATE, authv1.Verb_DEPLOY, authv1.Verb_SETTINGS, authv1.Verb_ADMIN, authv1.Verb_EXPORT, authv1.Verb_SECURITY:
		return true
	default:
		return false
	}
}

// Did records that the node itself called a procedure. target has the format of
// Entry.Target. Did on a nil Calls writes nothing.
func (c *Calls) Did(procedure, target string) {
	if c == nil {
		return
	}
	c.log.Add(Entry{
		Stage: stageComplete, Principal: Principal{Kind: KindNode, Name: c.log.opts.Node}, Method: procedure, Verb: c.verbs[procedure].text, Target: target, Code: "ok",
	})
}

// RecordRefused records that a request was rejected because of its credential.
func (c *Calls) RecordRefused(r *http.Request, reason string) {
	address := r.RemoteAddr
	e := Entry{Stage: stageComplete, Principal: Principal{Kind: string(authn.KindAnonymous)}, Address: address, Method: r.URL.Path, Code: connect.CodeUnauthenticated.String(), Reason: reason}
	if v, known := c.verbs[r.URL.Path]; known {
		e.Verb = v.text
	}
	c.refuse(e, refuser{client: clientOf(address)})
}

// RefusedNode records that a call of another node was rejected because the node
// is no member of the cluster. node is the name that it claims, which its
// certificate has proven if nodes use TLS. RefusedNode on a nil Calls writes
// nothing.
func (c *Calls) RefusedNode(node, address, procedure, reason string) {
	if c == nil {
		return
	}
	e := Entry{
		Stage: stageComplete, Principal: Principal{Kind: KindNode, Name: node}, Address: address, Method: procedure,
		Verb: c.verbs[procedure].text, Code: connect.CodePermissionDenied.String(), Reason: reason,
	}
	c.refuse(e, refuser{KindNode, clientOf(address)}) // without the name, because without TLS nodes claim any
}

// RecordDenied records that a command on a stream was rejected because its caller
// lacks the permission. ctx is the stream's context.
func (c *Calls) RecordDenied(ctx context.Context, entityType, entityID, commandID string) {
	k, _ := ctx.Value(callKey{}).(*call)
	if k == nil {
		return
	}
	e := k.entry
	e.Policy = k.policy.Load()
	e.Stage, e.Code = stageComplete, connect.CodePermissionDenied.String()
	e.Type, e.ID, e.CommandID = entityType, entityID, commandID
	c.refuse(e, callerOf(&e))
}

// callerOf returns the key under which rejected calls are counted for the rate
// limit.
func callerOf(e *Entry) refuser {
	caller := refuser{client: clientOf(e.Address)}
	if e.Principal.Kind != string(authn.KindAnonymous) {
		caller.identity = e.Principal.Kind + "/" + e.Principal.Name
	}
	return caller
}

func (c *Calls) refuse(e Entry, caller refuser) {
	left, ok := c.refused.take(caller, c.log.opts.Now().Unix())
	if !ok {
		return
	}
	e.Left = left
	c.log.Add(e)
}

// clientOf returns the part of an address, host:port, that identifies a client:
// an IPv4 address or an IPv6 /64 network, as for the limits on connections.
func clientOf(address string) string {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return address
	}
	return network.ClientOf(net.TCPAddrFromAddrPort(at))
}

// call is the state of a call that its two interceptors share.
type call struct {
	entry   Entry
	policy  atomic.Uint64 // the latest revision passed to Decided
	request proto.Message // not yet added to entry; nil if nothing is left to add
	begun   bool          // a line of stageReceived was written
}

// withRequest returns the entry with the fields of the request added. They are added
// this late because most calls get no line.
func (k *call) withRequest() Entry {
	if k.request != nil {
		k.entry.about(k.request)
		k.request = nil
	}
	e := k.entry
	e.Policy = k.policy.Load()
	return e
}

type callKey struct{}

// SetPolicyRevision records the revision of the roles that decided the call of ctx, or a
// command on its stream. The lines of the call contain it.
func SetPolicyRevision(ctx context.Context, revision uint64) {
	if k, _ := ctx.Value(callKey{}).(*call); k != nil {
		k.policy.Store(revision)
	}
}

// Outcomes returns the outermost interceptor, which records how calls end.
func (c *Calls) Outcomes() connect.Interceptor { return outcomes{c} }

// Changes returns an interceptor that records changes before they are made. It
// belongs after all interceptors that may reject a call.
func (c *Calls) Changes() connect.Interceptor { return received{c} }

// enter creates the state of a call; nil if calls of this procedure are never
// audited.
func (c *Calls) enter(ctx context.Context, spec connect.Spec, peer connect.Peer) *call {
	verb, known := c.verbs[spec.Procedure]
	if !known {
		return nil
	}
	by := authn.Of(ctx)
	p := Principal{Kind: string(by.Kind), Name: by.Name}
	node, caller := c.opts.Passed(ctx)
	if node != "" && caller != nil {
		p = Principal{Kind: string(caller.Kind), Name: caller.Name}
	}
	return &call{entry: Entry{
		Principal: p, Via: Via(node), Address: peer.Addr, Method: spec.Procedure, Verb: verb.text,
	}}
}

// Carry records what this node is about to do for another node. The caller
// must pass the outcome to end. If Carry returns an error, the line could
// not be written and the work must not be done. Carry on a nil Calls writes
// nothing.
func (c *Calls) Carry(ctx context.Context, e Entry) (end func(error), err error) {
	if c == nil {
		return func(error) {}, nil
	}
	k := &call{entry: e}
	if err := c.begin(ctx, k); err != nil {
		return nil, err
	}
	return func(err error) { c.write(k, err) }, nil
}

// Pass records a call that another node makes for a client, if every call is
// audited. If the entry has no verb, Pass sets the verb of its method. The
// outcome is in the other node's log. Pass on a nil Calls writes nothing.
func (c *Calls) Pass(e Entry) {
	if c == nil || !c.opts.All {
		return
	}
	if e.Stage = stageReceived; e.Verb == "" {
		e.Verb = c.verbs[e.Method].text
	}
	c.log.Add(e)
}

// leave records how a call ended, if it has to be recorded.
func (c *Calls) leave(k *call, err error) {
	if err == nil && !k.begun && !c.opts.All {
		return // the most frequent case
	}
	c.write(k, err)
}

// write is separate from leave to keep the stack frame of leave small.
func (c *Calls) write(k *call, err error) {
	code := connect.CodeOf(err)
	refused := err != nil && (code == connect.CodePermissionDenied || code == connect.CodeUnauthenticated)
	if !k.begun && !refused && !c.opts.All {
		return
	}
	e := k.withRequest()
	e.Stage, e.Code = stageComplete, "ok"
	if err != nil {
		e.Code = code.String()
	}
	if k.begun || !refused {
		c.log.Add(e)
	} else {
		c.refuse(e, callerOf(&e))
	}
}

// begin records a change before it is made. If it returns an error, the change
// must not be made.
func (c *Calls) begin(ctx context.Context, k *call) error {
	k.entry.Call = c.log.Call()
	k.begun = true
	e := k.withRequest()
	e.Stage = stageReceived
	if err := c.log.Write(ctx, e); err != nil {
		if c.opts.Continue {
			return nil
		}
		c.log.opts.Logger.Warn("rejected a change because the audit log cannot be written", "method", e.Method, "error", err)
		return connect.NewError(connect.CodeUnavailable, errUnwritten)
	}
	return nil
}

// outcomes is the interceptor that Outcomes returns.
type outcomes struct{ c *Calls }

// WrapUnary implements connect.Interceptor.
func (o outcomes) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		k := o.c.enter(ctx, req.Spec(), req.Peer())
		if k == nil {
			return next(ctx, req)
		}
		k.request, _ = req.Any().(proto.Message)
		res, err := next(context.WithValue(ctx, callKey{}, k), req)
		if err == nil && k.begun {
			if m, ok := res.Any().(proto.Message); ok {
				k.entry.Result = pairs(m, results)
			}
		}
		o.c.leave(k, err)
		return res, err
	}
}

// WrapStreamingClient implements connect.Interceptor. A server never uses it.
func (o outcomes) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor. A stream gets one line,
// about its first message.
func (o outcomes) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		k := o.c.enter(ctx, conn.Spec(), conn.Peer())
		if k == nil {
			return next(ctx, conn)
		}
		err := next(context.WithValue(ctx, callKey{}, k), &firstMessage{StreamingHandlerConn: conn, seen: func(m proto.Message) error {
			k.entry.about(m)
			return nil
		}, sent: func(m proto.Message) {
			if conn.Spec().StreamType == connect.StreamTypeClient {
				k.entry.Result = pairs(m, results)
			}
		}})
		o.c.leave(k, err)
		return err
	}
}

// firstMessage calls seen once, with the first message received on a stream,
// and sent with each message sent on it.
type firstMessage struct {
	connect.StreamingHandlerConn
	seen func(proto.Message) error // set to nil after the call
	sent func(proto.Message)       // may be nil
}

// Send implements connect.StreamingHandlerConn.
func (f *firstMessage) Send(message any) error {
	if m, ok := message.(proto.Message); ok && f.sent != nil {
		f.sent(m)
	}
	return f.StreamingHandlerConn.Send(message)
}

// Receive implements connect.StreamingHandlerConn. It isn't safe for concurrent
// use.
func (f *firstMessage) Receive(into any) error {
	if err := f.StreamingHandlerConn.Receive(into); err != nil || f.seen == nil {
		return err
	}
	seen := f.seen
	f.seen = nil
	m, ok := into.(proto.Message)
	if !ok {
		return nil
	}
	return seen(m)
}

// received is the interceptor that Changes returns.
type received struct{ c *Calls }

// of returns the call of ctx if it is a change, and nil otherwise.
func (r received) of(ctx context.Context, spec connect.Spec) *call {
	k, _ := ctx.Value(callKey{}).(*call)
	if k == nil || !changes(r.c.verbs[spec.Procedure].is) {
		return nil
	}
	return k
}

// WrapUnary implements connect.Interceptor.
func (r received) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if k := r.of(ctx, req.Spec()); k != nil {
			if err := r.c.begin(ctx, k); err != nil {
				return nil, err
			}
		}
		return next(ctx, req)
	}
}

// WrapStreamingClient implements connect.Interceptor. A server never uses it.
func (r received) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor. It writes the line when
// the first message arrives, because only that says what the stream is about.
func (r received) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		k := r.of(ctx, conn.Spec())
		if k == nil {
			return next(ctx, conn)
		}
		return next(ctx, &firstMessage{StreamingHandlerConn: conn, seen: func(proto.Message) error { return r.c.begin(ctx, k) }})
	}
}

// targets are the request fields that describe the subject of a call, besides the
// fields with a member of their own in Entry. None of them holds data sent to
// entities, a setting's value or a credential. A message among them is written
// with all its fields except bytes and maps.
var targets = []protoreflect.Name{
	"digest", "revision", "activate", "key", "node_id", "to_node", "shard_id", "moves", "cluster_version", "dry_run", "timer", "id",
	"replication", "min_members", "rebalance", "dead_after", "id_prefix", "tag", "cluster_id", "command", "query",
	"role_name", "subject", "roles", "token_name", "force", "accept_differences", "rollout", "limits", "owner", "action",
	"rules", "quotas", "expires_at", "with_security_roles", "limit", "sample", "all", "exclude_written_by", "kind", "duration",
}

// results are the response fields that describe the result of a change.
var results = []protoreflect.Name{"digest", "revision"}

// maxValue bounds one value in pairs. No scalar in an accepted request is
// longer.
const maxValue = maxTarget / 2

// pairs formats the set fields of m whose names are in some as NAME=VALUE,
// sorted and separated by spaces. Messages come last, because the text may be
// truncated. A value that would be ambiguous is quoted.
func pairs(m proto.Message, some []protoreflect.Name) string {
	var out, messages []string
	m.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case !slices.Contains(some, f.Name()):
		case f.Message() != nil:
			messages = appendPairs(messages, string(f.Name()), f, v)
		default:
			out = appendPairs(out, string(f.Name()), f, v)
		}
		return true
	})
	slices.Sort(out)
	slices.Sort(messages)
	return strings.Join(append(out, messages...), " ")
}

// appendPairs appends the value of a field. The path of a nested field contains
// the names of its parents, and the number of a message in a list, from 1. A
// duration is one value, such as 5m0s.
func appendPairs(out []string, path string, f protoreflect.FieldDescriptor, v protoreflect.Value) []string {
	switch {
	case f.IsMap() || f.Kind() == protoreflect.BytesKind:
	case f.Message() != nil && f.IsList():
		for i := range v.List().Len() {
			out = appendFields(out, path+"."+strconv.Itoa(i+1), v.List().Get(i).Message())
		}
	case f.Message() != nil:
		if d, ok := v.Message().Interface().(*durationpb.Duration); ok {
			return append(out, path+"="+d.AsDuration().String())
		}
		out = appendFields(out, path, v.Message())
	case f.IsList():
		var texts []string
		for i, size := 0, 0; i < v.List().Len() && size < maxValue; i++ {
			texts = append(texts, textOf(f, v.List().Get(i)))
			size += len(texts[i]) + 1
		}
		out = append(out, path+"="+strings.Join(texts, ","))
	default:
		out = append(out, path+"="+textOf(f, v))
	}
	return out
}

func appendFields(out []string, path string, m protoreflect.Message) []string {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if len(out) < maxTarget { // each element has at least one byte, so the rest would be truncated
			out = appendPairs(out, path+"."+string(f.Name()), f, v)
		}
		return true
	})
	return out
}

// textOf formats one value and quotes it if it would be ambiguous.
func textOf(f protoreflect.FieldDescriptor, v protoreflect.Value) string {
	text := v.String()
	if f.Kind() == protoreflect.EnumKind {
		if named := f.Enum().Values().ByNumber(v.Enum()); named != nil {
			text = string(named.Name())
		}
	}
	text = text[:min(len(text), maxValue)]
	if strings.ContainsAny(text, " ,=\"") || strconv.Quote(text) != `"`+text+`"` {
		return strconv.Quote(text)
	}
	return text
}

// about sets the fields that describe the subject of a request.
func (e *Entry) about(m proto.Message) {
	r := m.ProtoReflect()
	fields := r.Descriptor().Fields()
	for name, into := range map[protoreflect.Name]*string{"entity_type": &e.Type, "entity_id": &e.ID, "command_id": &e.CommandID} {
		if f := fields.ByName(name); f != nil && f.Kind() == protoreflect.StringKind && !f.IsList() {
			*into = r.Get(f).String()
		}
	}
	e.Target = pairs(m, targets)
}
