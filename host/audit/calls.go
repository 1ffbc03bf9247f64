package audit

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	authv1 "github.com/hostd/hostd/api/gen/hostd/auth/v1"
	"github.com/hostd/hostd/host/authn"
	"github.com/hostd/hostd/host/principal"
)

// Calls writes what is called into a log. It is safe for concurrent use.
type Calls struct {
	log     *Log
	opts    CallOptions
	verbs   map[string]verb // by procedure
	refused refusals
}

// verb is that of an rpc, and the text that lines have.
type verb struct {
	is   authv1.Verb
	text string
}

// CallOptions of Calls.
type CallOptions struct {
	// Services are those whose calls are written: each rpc has its verb.
	Services []protoreflect.ServiceDescriptor
	// All has every call written. Without it changes and refusals are.
	All bool
	// Continue lets changes through that the log has no line of. Without it they
	// are refused with unavailable.
	Continue bool
	// Passed returns the node that has passed a call on, and who it says made it;
	// an empty node for a call of a client. A nil caller is nobody who was asked.
	// Required.
	Passed func(ctx context.Context) (node string, caller *principal.Principal)
}

// errUnwritten is answered to changes that the log could not be told of.
var errUnwritten = errors.New("nothing was done: the node cannot write its audit log")

// NewCalls makes what writes calls into a log.
func NewCalls(log *Log, o CallOptions) *Calls {
	c := &Calls{log: log, opts: o, verbs: map[string]verb{}}
	for _, s := range o.Services {
		for i := range s.Methods().Len() {
			m := s.Methods().Get(i)
			c.verbs["/"+string(s.FullName())+"/"+string(m.Name())] = verb{VerbOf(m), strings.ToLower(VerbOf(m).String())}
		}
	}
	return c
}

// VerbOf is the verb that an rpc says.
func VerbOf(m protoreflect.MethodDescriptor) authv1.Verb {
	options, _ := m.Options().(*descriptorpb.MethodOptions)
	verb, _ := proto.GetExtension(options, authv1.E_Verb).(authv1.Verb)
	return verb
}

// changes reports whether a call of a verb is always written.
func changes(v authv1.Verb) bool {
	switch v {
	case authv1.Verb_OPERATE, authv1.Verb_DEPLOY, authv1.Verb_SETTINGS, authv1.Verb_ADMIN, authv1.Verb_EXPORT, authv1.Verb_SECURITY:
		return true
	default:
		return false
	}
}

// Did writes that the node has called a procedure by itself; target is as in an
// Entry. A nil Calls writes nothing.
func (c *Calls) Did(procedure, target string) {
	if c == nil {
		return
	}
	c.log.Add(Entry{
		Stage: StageComplete, Principal: Principal{Kind: KindNode, Name: c.log.opts.Node}, Method: procedure, Verb: c.verbs[procedure].text, Target: target, Code: "ok",
	})
}

// Refused writes that a request was refused for its credential.
func (c *Calls) Refused(r *http.Request, reason string) {
	address := r.RemoteAddr
	e := Entry{Stage: StageComplete, Principal: Principal{Kind: string(authn.KindAnonymous)}, Address: address, Method: r.URL.Path, Code: connect.CodeUnauthenticated.String(), Reason: reason}
	if v, known := c.verbs[r.URL.Path]; known {
		e.Verb = v.text
	}
	c.refuse(e, hostOf(address))
}

// RefusedNode writes that a call of another node was refused because that is no
// member of the cluster. node is what it calls itself, which its certificate
// has proven where nodes show any. A nil Calls writes nothing.
func (c *Calls) RefusedNode(node, address, procedure, reason string) {
	if c == nil {
		return
	}
	e := Entry{
		Stage: StageComplete, Principal: Principal{Kind: KindNode, Name: node}, Address: address, Method: procedure,
		Verb: c.verbs[procedure].text, Code: connect.CodePermissionDenied.String(), Reason: reason,
	}
	c.refuse(e, callerOf(&e))
}

// Denied writes that a command of a stream is one that its caller may not have
// carried out. ctx is the stream's.
func (c *Calls) Denied(ctx context.Context, entityType, entityID, commandID string) {
	k, _ := ctx.Value(callKey{}).(*call)
	if k == nil {
		return
	}
	e := k.entry
	e.Policy = k.policy.Load()
	e.Stage, e.Code = StageComplete, connect.CodePermissionDenied.String()
	e.Type, e.ID, e.CommandID = entityType, entityID, commandID
	c.refuse(e, callerOf(&e))
}

// callerOf is whose refusals are counted together.
func callerOf(e *Entry) string {
	return e.Principal.Kind + "/" + e.Principal.Name + "@" + hostOf(e.Address)
}

func (c *Calls) refuse(e Entry, caller string) {
	left, ok := c.refused.take(caller, c.log.opts.Now().Unix())
	if !ok {
		return
	}
	e.Left = left
	c.log.Add(e)
}

func hostOf(address string) string {
	if i := strings.LastIndexByte(address, ':'); i >= 0 {
		return address[:i]
	}
	return address
}

// call is what is known of a call between its two interceptors.
type call struct {
	entry   Entry
	policy  atomic.Uint64 // the latest of Decided
	request proto.Message // what the entry is to say yet; nil: nothing
	begun   bool          // it has a line of StageReceived
}

// filled returns the entry with what the request says. Most calls have no line,
// so it is not asked before.
func (k *call) filled() Entry {
	if k.request != nil {
		k.entry.about(k.request)
		k.request = nil
	}
	e := k.entry
	e.Policy = k.policy.Load()
	return e
}

type callKey struct{}

// Decided notes the revision of the roles that have decided the call of ctx, or
// a command of its stream, for its lines.
func Decided(ctx context.Context, revision uint64) {
	if k, _ := ctx.Value(callKey{}).(*call); k != nil {
		k.policy.Store(revision)
	}
}

// Outcomes is the outermost interceptor: it writes what came of calls.
func (c *Calls) Outcomes() connect.Interceptor { return outcomes{c} }

// Changes is an interceptor behind whatever may refuse a call: it writes
// changes before they are made.
func (c *Calls) Changes() connect.Interceptor { return received{c} }

// enter makes the entry of a call; nil where it is not written.
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

// Carry writes what this node is about to do for another one, and returns what
// is to be told of its end. It fails if that must not be done, because the log
// cannot be told. A nil Calls writes nothing.
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

// Pass writes what another node asks for, if every call is written: a request
// for an entity, whose verb is that of the client's procedure, or another one
// that names its verb. Its outcome is in the log of that node. A nil Calls
// writes nothing.
func (c *Calls) Pass(e Entry) {
	if c == nil || !c.opts.All {
		return
	}
	if e.Stage = StageReceived; e.Verb == "" {
		e.Verb = c.verbs[e.Method].text
	}
	c.log.Add(e)
}

// leave writes what came of a call.
func (c *Calls) leave(k *call, err error) {
	if err == nil && !k.begun && !c.opts.All {
		return // most calls
	}
	c.write(k, err)
}

// write is apart from leave for its large frame.
func (c *Calls) write(k *call, err error) {
	code := connect.CodeOf(err)
	refused := err != nil && (code == connect.CodePermissionDenied || code == connect.CodeUnauthenticated)
	if !k.begun && !refused && !c.opts.All {
		return
	}
	e := k.filled()
	e.Stage, e.Code = StageComplete, "ok"
	if err != nil {
		e.Code = code.String()
	}
	if k.begun || !refused {
		c.log.Add(e)
	} else {
		c.refuse(e, callerOf(&e))
	}
}

// begin writes a change before it is made, and says why it must not be.
func (c *Calls) begin(ctx context.Context, k *call) error {
	k.entry.Call = c.log.Call()
	k.begun = true
	e := k.filled()
	e.Stage = StageReceived
	if err := c.log.Write(ctx, e); err != nil {
		if c.opts.Continue {
			return nil
		}
		c.log.opts.Logger.Warn("refused a change that the audit log cannot be told of", "method", e.Method, "error", err)
		return connect.NewError(connect.CodeUnavailable, errUnwritten)
	}
	return nil
}

// outcomes is the interceptor of Outcomes.
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

// WrapStreamingClient implements connect.Interceptor; a server has no clients.
func (o outcomes) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor. A stream has one line,
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

// firstMessage calls seen with the first message of a stream, once, and sent
// with each that is sent.
type firstMessage struct {
	connect.StreamingHandlerConn
	seen func(proto.Message) error // nil once it was called
	sent func(proto.Message)       // may be nil
}

// Send implements connect.StreamingHandlerConn.
func (f *firstMessage) Send(message any) error {
	if m, ok := message.(proto.Message); ok && f.sent != nil {
		f.sent(m)
	}
	return f.StreamingHandlerConn.Send(message)
}

// Receive implements connect.StreamingHandlerConn. It is for one goroutine.
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

// received is the interceptor of Changes.
type received struct{ c *Calls }

// of returns the call of a context where it is a change.
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

// WrapStreamingClient implements connect.Interceptor; a server has no clients.
func (r received) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor. The line is written once
// the first message says what the stream is about.
func (r received) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		k := r.of(ctx, conn.Spec())
		if k == nil {
			return next(ctx, conn)
		}
		return next(ctx, &firstMessage{StreamingHandlerConn: conn, seen: func(proto.Message) error { return r.c.begin(ctx, k) }})
	}
}

// targets are the fields of requests, beside those of an Entry's own, that say
// what a call is about. None holds what entities are sent, a setting's value or
// a credential. Of a message all fields count but bytes.
var targets = []protoreflect.Name{
	"digest", "revision", "activate", "key", "node_id", "to_node", "shard_id", "moves", "level", "dry_run", "timer", "id",
	"replication", "min_members", "rebalance", "dead_after_millis", "id_prefix", "tag", "cluster_id", "command", "query",
	"role_name", "subject", "roles", "token_name", "force", "accept_differences", "rollout", "limits", "owner", "action",
	"rules", "quotas", "expires_at", "with_bindings", "limit", "sample", "all", "written_not_by", "kind", "seconds",
}

// results are the fields of answers that say what a change came to.
var results = []protoreflect.Name{"digest", "revision"}

// maxValue bounds a value of pairs: no request that is let in has a longer one,
// but for a message.
const maxValue = maxTarget / 2

// pairs lists the fields of a message that are among some, NAME=VALUE, of those
// that are set: messages last, since they may be cut. A value that could be read
// as more than one is quoted.
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

// appendPairs appends what a field has, under a path: the fields of a message by
// their names, the messages of a list by their numbers.
func appendPairs(out []string, path string, f protoreflect.FieldDescriptor, v protoreflect.Value) []string {
	switch {
	case f.IsMap() || f.Kind() == protoreflect.BytesKind:
	case f.Message() != nil && f.IsList():
		for i := range v.List().Len() {
			out = appendFields(out, path+"."+strconv.Itoa(i+1), v.List().Get(i).Message())
		}
	case f.Message() != nil:
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
		if len(out) < maxTarget { // each is a byte at least
			out = appendPairs(out, path+"."+string(f.Name()), f, v)
		}
		return true
	})
	return out
}

// textOf is one value, in quotes where it would not stand for itself.
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

// about fills in what a request says it is about.
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
