package sim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/disk/disktest"
	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/sharding"
)

// A snapshot of the model's state contains every entry applied to it, so that
// an installed state can be compared with the entries that other replicas
// applied.

// flushed returns the applied index of a shard's current generation in the
// latest written version.
func (m *machine) flushed(shard sharding.ShardID) uint64 {
	if n := len(m.versions); n > 0 {
		if at := m.versions[n-1].applied[shard]; at.generation == m.generations[shard] && m.shards[shard].generation == at.generation {
			return at.index
		}
	}
	return 0
}

// StateIndex implements raftgroup.Snapshots.
func (m *machine) StateIndex(shard sharding.ShardID) (index uint64, term sharding.Term) {
	if m.n.w.messages != nil {
		if m.generations[shard] != m.shards[shard].generation {
			return 0, 0
		}
		return m.product.machine.StateIndex(shard)
	}
	if index = m.flushed(shard); index == 0 {
		return 0, 0
	}
	return index, m.shards[shard].log[index-1].Term
}

// Pin implements raftgroup.Snapshots.
func (m *machine) Pin(shard sharding.ShardID) (statefile.Pinned, error) {
	index, term := m.StateIndex(shard)
	if index == 0 {
		return nil, errors.New("nothing is held")
	}
	m.pins++
	if m.n.w.messages != nil {
		p, err := m.product.machine.Pin(shard)
		return &counted{Pinned: p, m: m}, err
	}
	return &pinned{m: m, head: statefile.Header{Shard: shard, Index: index, Term: term}, log: m.shards[shard].log[:index]}, nil
}

type pinned struct {
	m      *machine
	head   statefile.Header
	log    []journal.Committed
	next   int
	closed bool
	value  []byte
}

// counted is a pinned state of the product's machine. It counts as one of the
// model's pins until it is closed.
type counted struct {
	statefile.Pinned
	m      *machine
	closed bool
}

func (c *counted) Stream() io.ReadCloser { return countedStream{c.Pinned.Stream(), c} }

func (c *counted) Close() error {
	c.release()
	return c.Pinned.Close()
}

func (c *counted) release() {
	if !c.closed {
		c.closed = true
		c.m.pins--
	}
}

type countedStream struct {
	io.ReadCloser
	c *counted
}

func (s countedStream) Close() error {
	s.c.release()
	return s.ReadCloser.Close()
}

func (p *pinned) Header() statefile.Header { return p.head }

func (p *pinned) Stream() io.ReadCloser { return statefile.NewWriter(p.head, p) }

func (p *pinned) Next() (key, value []byte, err error) {
	if p.next == len(p.log) {
		return nil, nil, io.EOF
	}
	e := p.log[p.next]
	p.next++
	p.value = append(binary.BigEndian.AppendUint64(p.value[:0], uint64(e.Term)), e.Data...)
	return binary.BigEndian.AppendUint64(nil, e.Index), p.value, nil
}

func (p *pinned) Close() error {
	if p.closed {
		return nil
	}
	p.closed = true
	if p.m.pins--; p.m.pins < 0 {
		p.m.n.w.fail("node %d: a state was released that nobody held", p.m.n.id)
	}
	return nil
}

// Install implements raftgroup.Snapshots.
func (m *machine) Install(shard sharding.ShardID, generation uint32, in statefile.Install) {
	m.generations[shard] = generation
	m.queue = append(m.queue, batch{shard: shard, generation: generation, install: &in, slow: m.n.w.rng.IntN(12)})
}

// Drop implements raftgroup.Snapshots.
func (m *machine) Drop(shard sharding.ShardID, next uint32) {
	m.generations[shard] = next
	m.queue = append(m.queue, batch{shard: shard, generation: next, drop: true})
	delete(m.n.quorum, shard)
	l := m.n.executors[shard]
	m.n.events = append(m.n.events, func() { l.leader(l.term, false) })
}

// turnOver ends a shard's generation and begins the next generation.
func (m *machine) turnOver(b batch) {
	if m.n.w.messages != nil {
		m.begin(b.shard, b.generation)
		delete(m.n.store.lied, b.shard)
		delete(m.n.store.hid, b.shard)
		if b.drop {
			m.product.machine.Drop(b.shard, b.generation)
			return
		}
		m.product.machine.Install(b.shard, b.generation, *b.install)
		m.n.w.note("install %d %d %d %d", m.n.id, b.shard, b.generation, b.install.Index)
		m.n.w.count.installs++
		return
	}
	if b.drop {
		m.begin(b.shard, b.generation)
		return
	}
	m.n.w.note("install %d %d %d %d", m.n.id, b.shard, b.generation, b.install.Index)
	m.n.w.count.installs++
	m.n.check(m.readIn(b.shard, b.generation, b.install))
}

// readIn begins a generation with a snapshot.
func (m *machine) readIn(shard sharding.ShardID, generation uint32, in *statefile.Install) (err error) {
	stream := in.Stream
	if stream == nil {
		if stream, err = in.Open(); err != nil {
			return err
		}
	}
	defer stream.Close()
	r, err := statefile.NewReader(stream, nil)
	if err != nil {
		return err
	}
	m.begin(shard, generation)
	for {
		chunk, err := r.Next(false)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		err = chunk.Each(func(key, value []byte) error {
			m.apply(shard, journal.Committed{
				Index: binary.BigEndian.Uint64(key), Term: sharding.Term(binary.BigEndian.Uint64(value)), Data: bytes.Clone(value[8:]),
			}, nil)
			return nil
		})
		if err != nil {
			return err
		}
	}
	if r.Trailer().Digest != in.Digest || m.shards[shard].index != in.Index {
		return fmt.Errorf("%w: the snapshot is of index %d, the log says %d", journal.ErrDamaged, m.shards[shard].index, in.Index)
	}
	return nil
}

// shipment is a snapshot in flight.
type shipment struct {
	at             int // step of arrival
	from, to       int
	sender, taker  int // numbers of the sending and the receiving process
	out            *raftgroup.Outgoing
	arrived, ended bool
}

// ship sends the snapshots that a node has ready.
func (n *node) ship() {
	for _, o := range n.driver.TakeSnapshots() {
		at := n.w.step + 1 + n.w.rng.IntN(40)
		n.w.note("ship %d %d %d %d", n.id, o.Shard, o.To, o.Index)
		n.w.shipping = append(n.w.shipping, &shipment{at: at, from: n.id, to: n.w.index(o.Node), sender: n.process, out: o})
	}
}

// carry delivers the snapshots that have arrived.
func (w *World) carry() {
	under := w.shipping
	w.shipping = nil
	for _, s := range under {
		switch from, to := w.nodes[s.from], w.nodes[s.to]; {
		case s.ended:
		case !from.up || from.process != s.sender:
			s.out.Release() // the process that sent it has ended
		case s.arrived && (!to.up || to.process != s.taker):
			w.sent(s, errors.New("the node stopped"))
		case s.arrived || s.at > w.step:
			w.shipping = append(w.shipping, s)
		default:
			w.arrive(s)
			if !s.ended {
				w.shipping = append(w.shipping, s)
			}
		}
	}
}

var errLost = errors.New("the snapshot was lost")

// arrive delivers a snapshot. Some streams end early.
func (w *World) arrive(s *shipment) {
	to := w.nodes[s.to]
	if !to.up || to.paused > w.step || w.cut[[2]int{s.from, s.to}] || !w.healing && w.rng.Float64() < w.profile.loss {
		w.sent(s, errLost)
		return
	}
	if err := w.question(s); err != nil {
		w.sent(s, err)
		return
	}
	head, all, err := s.out.Stream()
	var body []byte
	if err == nil {
		body, err = io.ReadAll(all)
		err = errors.Join(err, all.Close())
	}
	if err != nil {
		if !errors.Is(err, disktest.ErrPowerCut) {
			w.fail("node %d: read a snapshot: %v", s.from, err)
		}
		w.sent(s, err)
		return
	}
	if !w.healing && w.rng.IntN(12) == 0 {
		body = body[:w.rng.IntN(len(body))]
	}
	s.arrived, s.taker = true, to.process
	to.driver.ReceiveSnapshot(w.name(s.from), head, bytes.NewReader(body), func(_ []byte, err error) {
		if errors.Is(err, disktest.ErrPowerCut) {
			to.check(err)
		}
		w.sent(s, err)
	})
}

// question asks the receiver which part of a snapshot it already has from an
// earlier attempt.
func (w *World) question(s *shipment) error {
	head, question := s.out.Question()
	if question == nil {
		return nil
	}
	to := w.nodes[s.to]
	var answer []byte
	var err error
	to.driver.ReceiveSnapshot(w.name(s.from), head, question, func(a []byte, e error) { answer, err = a, e })
	if errors.Is(err, disktest.ErrPowerCut) {
		to.check(err)
		return err
	}
	return s.out.Resume(answer, err)
}

// sent reports the result of a snapshot to its sender. The report itself may be
// lost.
func (w *World) sent(s *shipment, err error) {
	if s.ended {
		return
	}
	s.ended = true
	w.note("sent %d %d %v", s.from, s.to, err)
	if err == nil {
		w.count.snapshots++
	} else {
		w.count.refusals++
	}
	if err == nil && !w.healing && w.rng.IntN(10) == 0 {
		err = errLost
	}
	if from := w.nodes[s.from]; from.up && from.process == s.sender {
		from.driver.ReportSnapshot(s.out, err)
	} else {
		s.out.Release()
	}
}
