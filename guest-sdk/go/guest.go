package hostd

import (
	"unsafe"

	"github.com/hostd/hostd/abi"
)

// Guest is a module as its host sees it: the calls of the ABI, with byte slices
// instead of addresses. The Wasm exports are wrappers around a Guest, and test
// tools use it natively. Results are valid until the next call. A Guest panics
// on input that a correct host never sends, such as malformed frames or a
// handle that was not loaded.
type Guest struct {
	// Log receives the lines of View.Log. It must not be nil.
	Log func(level abi.LogLevel, line string)

	name     string
	version  string
	types    []*definition
	entities []*entityPage // entities by handle
	out      []byte
	before   []byte // the state before a command of a durable-state type
	command  Context
	query    View
}

// entity is one entity, or a free handle if def is nil.
type entity struct {
	def   *definition
	state unsafe.Pointer
	id    string
}

// entityPage holds the entities of consecutive handles. Rejected: one growing
// slice. Linear memory never shrinks, and each block that a growing slice
// leaves behind is too small for the next slice.
type entityPage [pageEntities]entity

const pageEntities = 256

// maxEntities limits handles, so that an invalid handle does not exhaust
// memory.
const maxEntities = 1 << 26

// NewGuest returns a module of the given types. It panics if there are no types
// or if two types have the same name.
func NewGuest(name, version string, types ...Registration) *Guest {
	if err := abi.ValidateName("module", name); err != nil {
		panic("hostd: " + err.Error())
	}
	if len(types) == 0 {
		panic("hostd: a module needs an entity type")
	}
	g := &Guest{name: name, version: version, Log: func(abi.LogLevel, string) {}}
	for _, t := range types {
		d := t.definition()
		for _, other := range g.types {
			if other.name == d.name {
				panic("hostd: entity type " + d.name + " is registered twice")
			}
		}
		d.link()
		d.linkStates()
		g.types = append(g.types, d)
	}
	return g
}

// Load creates an entity of the given type, from a snapshot if the input has
// one.
func (g *Guest) Load(typ int32, handle int64, input []byte) abi.LoadStatus {
	if typ < 0 || int(typ) >= len(g.types) {
		panic("hostd: load of an unknown entity type")
	}
	if handle < 0 || handle >= maxEntities {
		return abi.LoadNoRoom
	}
	var request abi.Request
	if err := abi.ParseRequest(&request, input); err != nil {
		panic("hostd: " + err.Error())
	}
	d := g.types[typ]
	var state unsafe.Pointer
	var status abi.LoadStatus
	if version := request.StateVersion; d.workflow {
		state, status = d.loadRun(string(request.EntityID), request.Snapshot)
	} else if version == 0 || version == uint64(d.stateForms.version) {
		state, status = d.load(request.Snapshot)
	} else {
		state, status = d.migrate(version, request.Snapshot)
	}
	if status == abi.LoadDone {
		g.Drop(handle)
		*g.place(handle) = entity{d, state, string(request.EntityID)}
	}
	return status
}

// place returns the slot of a handle, so that the caller can set it.
func (g *Guest) place(handle int64) *entity {
	page := int(handle / pageEntities)
	for page >= len(g.entities) {
		g.entities = append(g.entities, nil)
	}
	if g.entities[page] == nil {
		g.entities[page] = new(entityPage)
	}
	return &g.entities[page][handle%pageEntities]
}

func (d *definition) load(snapshot []byte) (unsafe.Pointer, abi.LoadStatus) {
	if snapshot == nil {
		return d.initial(), abi.LoadDone
	}
	state := d.blank()
	if err := d.state.Decode(snapshot, state); err != nil {
		return nil, abi.LoadUnreadable
	}
	return state, abi.LoadDone
}

// loadRun loads a run from the payload of its last checkpoint. The host makes
// no other snapshots of runs, but tools also load the snapshot of a run that
// was not started.
func (d *definition) loadRun(id string, checkpoint []byte) (unsafe.Pointer, abi.LoadStatus) {
	state := d.initial()
	if checkpoint == nil || string(checkpoint) == emptyRun {
		return state, abi.LoadDone
	}
	d.id = id
	if err := d.event([]byte(eventCheckpoint)).evolve(state, checkpoint); err != nil {
		return nil, abi.LoadUnreadable
	}
	return state, abi.LoadDone
}

// Apply applies events of an entity's history to its state.
func (g *Guest) Apply(handle int64, input []byte) int32 {
	e := g.entity(handle)
	reader := abi.NewReader(input)
	for {
		frame, ok, err := reader.Next()
		if err != nil {
			panic("hostd: " + err.Error())
		}
		if !ok {
			return abi.ApplyDone
		}
		if frame.Kind != abi.InEvent {
			continue
		}
		if err := e.apply(frame.Body); err != nil {
			g.Log(abi.LogError, "apply: "+err.Error())
			return applyFailed
		}
	}
}

// applyFailed is the result of Apply for an event that this module cannot
// decode.
const applyFailed = 1

func (e *entity) apply(body []byte) error {
	in, err := abi.DecodeInputEvent(body)
	if err != nil {
		return err
	}
	event, payload, err := e.def.upcastToNewest(in.Type, in.Payload)
	if err != nil {
		return err
	}
	if event == nil {
		return &abi.NameError{Noun: "event type " + string(in.Type), Reason: "is not declared"}
	}
	e.def.now, e.def.id = in.RecordedAt, e.id
	return event.evolve(e.state, payload)
}

// Handle runs a command and returns its output frames.
func (g *Guest) Handle(handle int64, input []byte) []byte {
	e := g.entity(handle)
	c := &g.command
	c.open(g, e, input)
	c.random = c.request.Seed
	g.out = g.out[:0]
	if e.def.durable {
		g.before = e.snapshot(g.before[:0])
	}
	err := g.decide(c)
	if err != nil {
		g.reject(err)
	}
	if e.def.durable {
		g.settle(e, err != nil)
	}
	if e.def.workflow && err == nil {
		g.out = (*RunState)(e.state).progress(g.out)
	}
	return g.out
}

func (g *Guest) decide(c *Context) error {
	command := c.def.command(c.request.Name)
	if command == nil {
		return &Rejection{CodeUnknownName, "no such command"}
	}
	return command.run(c, c.state, c.request.Payload)
}

// settle ends a command of a durable-state type: it emits the state if it
// changed, and restores it if the command was rejected.
func (g *Guest) settle(e *entity, rejected bool) {
	if rejected {
		state, status := e.def.load(g.before)
		if status != abi.LoadDone {
			panic("hostd: the state cannot be read back")
		}
		e.state = state
		return
	}
	if e.def.transient {
		return
	}
	out, mark := abi.BeginFrame(g.out, abi.OutState)
	out = e.snapshot(out)
	if string(out[mark:]) == string(g.before) {
		g.out = out[:mark-abi.HeaderBytes]
		return
	}
	abi.EndFrame(out, mark)
	g.out = out
}

// Query runs a query and returns its output frames.
func (g *Guest) Query(handle int64, input []byte) []byte {
	e := g.entity(handle)
	v := &g.query
	v.open(g, e, input)
	g.out = g.out[:0]
	if err := v.answer(); err != nil {
		g.reject(err)
	}
	return g.out
}

func (v *View) answer() error {
	query := v.def.query(v.request.Name)
	if query == nil {
		return &Rejection{CodeUnknownName, "no such query"}
	}
	return query.run(v, v.state, v.request.Payload)
}

func (g *Guest) reject(err error) {
	r := rejectionOf(err)
	g.out = abi.AppendReject(g.out, field(r.Code), field(r.Message))
}

// Snapshot returns an entity's state.
func (g *Guest) Snapshot(handle int64) []byte {
	g.out = g.entity(handle).snapshot(g.out[:0])
	return g.out
}

func (e *entity) snapshot(dst []byte) []byte {
	if e.def.prepare != nil {
		e.def.prepare(e.state)
	}
	dst, err := e.def.state.Append(dst, e.state)
	if err != nil {
		panic("hostd: state of " + e.def.name + ": " + err.Error())
	}
	return dst
}

// Drop forgets an entity.
func (g *Guest) Drop(handle int64) {
	if e := g.find(handle); e != nil {
		if e.def != nil && e.def.release != nil {
			e.def.release(e.state)
		}
		*e = entity{}
	}
}

// find returns the entity with a handle. The entity may be a free slot; for a
// handle that was never used, it is nil.
func (g *Guest) find(handle int64) *entity {
	if handle < 0 || handle/pageEntities >= int64(len(g.entities)) {
		return nil
	}
	page := g.entities[handle/pageEntities]
	if page == nil {
		return nil
	}
	return &page[handle%pageEntities]
}

func (g *Guest) entity(handle int64) *entity {
	e := g.find(handle)
	if e == nil || e.def == nil {
		panic("hostd: no entity has this handle")
	}
	return e
}

// reply appends a reply frame, unless the reply is None.
func (g *Guest) reply(c codec, value unsafe.Pointer) {
	if _, none := c.(noCodec); none {
		return
	}
	out, mark := abi.BeginFrame(g.out, abi.OutReply)
	out, err := c.Append(out, value)
	if err != nil {
		panic("hostd: reply: " + err.Error())
	}
	abi.EndFrame(out, mark)
	g.out = out
}
