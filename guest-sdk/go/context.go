package hostd

import (
	"reflect"
	"unsafe"

	"github.com/hostd/hostd/abi"
)

// View is the interface of a query handler to the host. It is valid during the
// call.
type View struct {
	guest   *Guest
	def     *definition
	id      string
	state   unsafe.Pointer
	request abi.Request
}

// open sets v up for a call.
func (v *View) open(g *Guest, e *entity, input []byte) {
	v.guest, v.def, v.id, v.state = g, e.def, e.id, e.state
	if err := abi.ParseRequest(&v.request, input); err != nil {
		panic("hostd: " + err.Error())
	}
	e.def.now, e.def.id = v.request.Now, e.id
}

// EntityType returns the name of the entity's type.
func (v *View) EntityType() string { return v.def.name }

// EntityID returns the entity's id.
func (v *View) EntityID() string { return v.id }

// Sequence returns the number of the entity's last event before this call.
func (v *View) Sequence() uint64 { return v.request.Sequence }

// Now returns the time that the host set for this call. It never runs backwards
// for an entity.
func (v *View) Now() Instant { return Instant(v.request.Now) }

// Principal is the identity of a caller.
type Principal struct {
	// Kind is "token", "jwt", "certificate", or "anonymous" for a caller
	// without a credential.
	Kind string
	// Name is unique within its kind; empty for anonymous callers.
	Name   string
	Groups []string
}

// Principal returns the caller. It returns false if the cluster does not
// authenticate callers, and for commands that entities and timers send. A
// handler that authorizes by owner should then reject.
func (v *View) Principal() (Principal, bool) {
	if v.request.Principal == nil {
		return Principal{}, false
	}
	from, err := abi.DecodePrincipal(v.request.Principal)
	if err != nil {
		panic("hostd: " + err.Error())
	}
	p := Principal{Kind: string(from.Kind), Name: string(from.Name)}
	for group := range from.Groups() {
		p.Groups = append(p.Groups, string(group))
	}
	return p, true
}

// Setting returns the value that an operator has set for the entity's type
// under a name (hostd setting put entity.TYPE.value.NAME), and false if no
// value is set. A new value reaches different nodes at slightly different
// times. Event functions cannot read settings, so put the values that an event
// needs into the event.
func (v *View) Setting(name string) (value string, ok bool) {
	for n, value := range abi.Settings(v.request.Settings) {
		if string(n) == name {
			return string(value), true
		}
	}
	return "", false
}

// Log writes a line to the node's log. The host keeps 32 lines of 1 KiB per
// call.
func (v *View) Log(level abi.LogLevel, line string) { v.guest.Log(level, line) }

// Context is the interface of a command handler to the host. It is valid during
// the call.
type Context struct {
	View
	random uint64
}

// CommandID returns the command's id, under which it takes effect only once.
func (c *Context) CommandID() string { return string(c.request.CommandID) }

// Kinds of Source.
const (
	SourceClient = abi.SourceClient
	SourceTimer  = abi.SourceTimer
	SourceEntity = abi.SourceEntity
)

// Source is the sender of a command. EntityType and EntityID are set for
// SourceEntity.
type Source struct {
	Kind       abi.SourceKind
	EntityType string
	EntityID   string
}

// Source returns the sender of this command.
func (c *Context) Source() Source {
	s := c.request.Source
	return Source{s.Kind, string(s.EntityType), string(s.EntityID)}
}

// Token returns the token of the send whose outcome this command delivers. It
// returns "" if the command delivers no outcome, or if the send had no token.
func (c *Context) Token() string { return string(c.request.Token) }

// Random returns the next number of the command's own random sequence: the same
// command on the same state draws the same numbers. It is not suitable for
// secrets.
func (c *Context) Random() uint64 { // splitmix64
	c.random += 0x9e3779b97f4a7c15
	z := c.random
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Emit appends an event and applies it to the state before it returns. value is
// of a type that was declared with Event, or a pointer to one. Events with a
// tag can be read across entities. Emit panics if value is not an event of this
// entity type.
func (c *Context) Emit(value any, tags ...string) {
	e := c.def.eventOf(typeWord(value))
	if e == nil {
		e, value = c.eventOfPointer(value)
	}
	g := c.guest
	out, mark := abi.BeginFrame(g.out, abi.OutEvent)
	out = abi.AppendField(out, e.name)
	payload := len(out)
	out, err := e.append(out, value)
	if err != nil {
		panic("hostd: event " + e.name + ": " + err.Error())
	}
	abi.EndFrame(out, mark)
	written := out[payload:]
	for _, tag := range tags {
		out = abi.AppendTag(out, tag)
	}
	g.out = out
	if err := e.evolve(c.state, written); err != nil {
		panic("hostd: event " + e.name + " cannot be read back: " + err.Error())
	}
}

// eventOfPointer finds the event for a pointer to its type.
func (c *Context) eventOfPointer(value any) (*event, any) {
	v := reflect.ValueOf(value)
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		if e := c.def.eventOf(typeWord(v.Elem().Interface())); e != nil {
			return e, v.Elem().Interface()
		}
	}
	name := "nil"
	if v.IsValid() {
		name = v.Type().String()
	}
	panic("hostd: " + c.def.name + ": " + name + " is not an event of this type")
}

// Send sends a command to another entity, exactly once, after this command has
// been stored. The payload is encoded in this entity type's encoding.
func (c *Context) Send(entityType, entityID, command string, payload any) {
	c.guest.out = abi.AppendSend(c.guest.out, abi.Send{
		EntityType: field(entityType), EntityID: field(entityID), Command: field(command), Payload: c.payload(payload),
	})
}

// Answer names the commands of this entity that receive the outcome of a send.
type Answer struct {
	OnReply  string // command whose payload is the reply
	OnReject string // command whose payload is {"code":...,"message":...}
	// Token, at most 32 bytes, is returned with the outcome, see Context.Token. It
	// needs cluster version 3.
	Token string
}

// SendWithAnswer is like Send, but the outcome is sent back as a command.
func (c *Context) SendWithAnswer(entityType, entityID, command string, payload any, answer Answer) {
	c.guest.out = abi.AppendSend(c.guest.out, abi.Send{
		EntityType: field(entityType), EntityID: field(entityID), Command: field(command), Payload: c.payload(payload),
		WantsAnswer: true, OnReply: field(answer.OnReply), OnReject: field(answer.OnReject), Token: []byte(answer.Token),
	})
}

// SetTimer makes the host send this entity a command at the given time. It
// replaces a timer of the same name. If the time is before 1970, the host
// rejects the command with invalid_argument. SetTimer does not panic in that
// case, because the time may come from a caller, and a panic would be a guest
// fault.
func (c *Context) SetTimer(name string, due Instant, command string, payload any) {
	c.guest.out = abi.AppendSetTimer(c.guest.out, abi.Timer{
		Name: field(name), Due: int64(due), Command: field(command), Payload: c.payload(payload),
	})
}

// CancelTimer removes the timer with the given name, if there is one.
func (c *Context) CancelTimer(name string) {
	c.guest.out = abi.AppendCancelTimer(c.guest.out, name)
}

// Passivate asks the host to remove the entity from memory after this command.
func (c *Context) Passivate() { c.guest.out = abi.AppendPassivate(c.guest.out) }

// Delete deletes the entity after this command's events. Its id can be used
// again; the new entity starts from the initial state.
func (c *Context) Delete() { c.guest.out = abi.AppendDelete(c.guest.out) }

// field returns text for a frame field whose length has 16 bits. It truncates a
// longer text to the maximum length, which still exceeds the limit of any name,
// so the host rejects the command with out_of_range. Rejected: panicking, which
// would let a caller cause a guest fault.
func field(text string) []byte {
	return []byte(text[:min(len(text), abi.MaxFieldBytes)])
}

func (c *Context) payload(value any) []byte {
	payload, err := c.def.encode(nil, value)
	if err != nil {
		panic("hostd: " + c.def.name + ": payload: " + err.Error())
	}
	return payload
}
