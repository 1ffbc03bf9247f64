package bootstrap

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/hostd/hostd/sharding"
)

// simulated is a node: its process and its disk.
type simulated struct {
	name    sharding.NodeID
	wants   bool // configured to bootstrap
	absent  bool // the node never starts
	start   uint64
	up      bool
	core    *Candidate
	ordered bool // an operator has ordered it since it started
	disk    Vote
	cluster string
	// The current round.
	attempt Vote
	open    bool
	number  int
	asked   []int
	answers map[int]Answer
}

// message is a request or an answer.
type message struct {
	at, from, to, number int
	ask                  bool
	pledge               Vote
	back                 bool
	said                 Answer
}

// nodes is a set of nodes that look for a cluster. Each has all others as
// seeds.
type nodes struct {
	r        *rand.Rand
	nodes    []*simulated
	expect   int  // number of nodes that each node waits for; if set, name resolution may not return all other nodes
	orders   bool // an operator orders some nodes to bootstrap
	loss     float64
	messages []message
	step     int
	starts   uint64
	clusters map[string]bool
	wiped    bool
}

// In the first steps nodes and messages fail; after that everything works.
const (
	troubled = 600
	allSteps = 1200
)

func newNodes(seed uint64) *nodes {
	r := rand.New(rand.NewPCG(seed, 9))
	s := &nodes{r: r, orders: r.IntN(2) == 0, loss: []float64{0, 0.1, 0.4}[r.IntN(3)], clusters: map[string]bool{}}
	size := 2 + r.IntN(4)
	if r.IntN(2) == 0 {
		s.expect = size/2 + 1 + r.IntN(size-size/2)
	}
	if s.orders && s.expect > 0 {
		s.expect = size // a lower value could allow two clusters
	}
	// If an operator orders the bootstrap, a minority may be missing forever.
	absent := 0
	if s.orders && r.IntN(2) == 0 {
		absent = r.IntN((size + 1) / 2)
	}
	all, none := r.IntN(2) == 0, s.orders && r.IntN(2) == 0
	for i := range size {
		s.nodes = append(s.nodes, &simulated{
			name: sharding.NodeID(fmt.Sprint("n", i)), wants: !none && (all || i == 0 || r.IntN(3) == 0),
		})
	}
	for _, i := range r.Perm(size)[:absent] {
		s.nodes[i].absent = true
	}
	return s
}

func (s *nodes) quiet() bool { return s.step > troubled }

// send sends a message, which may be lost, duplicated or delayed.
func (s *nodes) send(l message) {
	for range 1 + s.r.IntN(2)*s.r.IntN(2) {
		if s.r.Float64() >= s.loss || s.quiet() {
			l.at = s.step + 1 + s.r.IntN(8)
			s.messages = append(s.messages, l)
		}
	}
}

// others returns the number of other nodes that belong to a cluster.
func (s *nodes) others(n *simulated) (holders int) {
	for _, o := range s.nodes {
		if o != n && o.cluster != "" {
			holders++
		}
	}
	return holders
}

// trouble starts and crashes nodes, and makes some lose their disks and with
// them their votes. An ordered node needs only a majority of answers, so every
// majority must contain a member of the cluster: enough nodes keep their disks
// to ensure that.
func (s *nodes) trouble() {
	for _, n := range s.nodes {
		switch {
		case n.absent:
		case !n.up && (s.quiet() || s.r.IntN(20) == 0):
			s.starts++
			n.start, n.up, n.open, n.ordered = s.starts, true, false, false
			n.core = New(n.name, n.start, n.disk)
		case n.up && !s.quiet() && s.r.IntN(150) == 0:
			n.up = false
			holders := s.others(n)
			if s.r.IntN(3) == 0 && (holders > len(s.nodes)/2 || holders > 0 && s.expect == 0 && !s.orders) {
				n.cluster, n.disk, s.wiped = "", Vote{}, true
			}
		}
	}
}

// operate orders nodes to bootstrap, as an operator would: some during the run,
// several of them concurrently, and at the end one or two of the running nodes.
func (s *nodes) operate() {
	last := s.step == troubled+50
	if !s.orders || !last && s.r.IntN(100) > 0 {
		return
	}
	left := 1 + s.r.IntN(2)
	for _, i := range s.r.Perm(len(s.nodes)) {
		if n := s.nodes[i]; n.up && left > 0 {
			left--
			n.ordered = true
		}
	}
}

// deliver delivers the due messages.
func (s *nodes) deliver() {
	due := s.messages
	s.messages = nil
	for _, l := range due {
		n := s.nodes[l.to]
		switch {
		case l.at > s.step:
			s.messages = append(s.messages, l)
		case !n.up:
		case l.ask:
			said := Answer{Node: n.name, Cluster: n.cluster}
			if n.cluster == "" {
				said.VotedFor = n.core.HandleRequest(l.pledge, l.back)
				n.disk = n.core.Vote()
			}
			s.send(message{from: l.to, to: l.from, number: l.number, said: said})
		case n.open && l.number == n.number && n.cluster == "":
			if l.said.Cluster != "" {
				n.cluster, n.open = l.said.Cluster, false // the node joins the answering node's cluster
				continue
			}
			n.answers[l.from] = l.said
		}
	}
}

// act continues a node's round or starts the next round.
func (s *nodes) act(i int) {
	n := s.nodes[i]
	if !n.up || n.cluster != "" || s.r.IntN(4) > 0 {
		return
	}
	if n.open && n.attempt.Node == n.name {
		answers := make([]Answer, len(n.asked))
		for k, seed := range n.asked {
			answers[k] = n.answers[seed]
		}
		if n.core.Decide(n.attempt, s.expect, answers) {
			if !s.quiet() && s.r.IntN(8) == 0 {
				n.up = false // crashes before the cluster is stored
				return
			}
			n.cluster = fmt.Sprint(n.name, "@", n.start)
			s.clusters[n.cluster] = true
			return
		}
	}
	if n.open && s.r.IntN(10) > 0 {
		return // waiting for answers
	}
	ask, back := n.core.Begin(n.wants || n.ordered, n.ordered)
	n.disk = n.core.Vote()
	n.number++
	n.open, n.asked, n.answers, n.attempt = true, nil, map[int]Answer{}, Vote{}
	if !back {
		n.attempt = ask
	}
	for k := range s.nodes {
		if shown := s.expect == 0 || s.quiet() || s.r.IntN(4) > 0; k != i && shown {
			n.asked = append(n.asked, k)
			s.send(message{from: i, to: k, number: n.number, ask: true, pledge: ask, back: back})
		}
	}
}

// Some nodes are configured or ordered to bootstrap, possibly several at once.
// They start in any order, crash, lose their disks and messages. There are
// never two clusters, and there is exactly one cluster in the end.
func TestNodesNeverBootstrapTwoClusters(t *testing.T) {
	founded, contested, ordered, without := 0, 0, 0, 0
	for seed := range uint64(6000) {
		s := newNodes(seed)
		for s.step = range allSteps {
			s.trouble()
			s.operate()
			s.deliver()
			for i := range s.nodes {
				s.act(i)
			}
			if len(s.clusters) > 1 {
				t.Fatalf("seed %d step %d: two clusters, %v", seed, s.step, s.clusters)
			}
		}
		wanting, absent := 0, 0
		for _, n := range s.nodes {
			if n.wants {
				wanting++
			}
			if n.absent {
				absent++
			} else if n.cluster == "" && !s.wiped {
				t.Fatalf("seed %d: %s is in no cluster in the end; %d nodes, %d want to found, ordered: %v, expect %d", seed, n.name, len(s.nodes), wanting, s.orders, s.expect)
			}
		}
		founded += len(s.clusters)
		switch {
		case s.orders && absent > 0:
			without += len(s.clusters)
		case s.orders:
			ordered += len(s.clusters)
		case wanting > 1:
			contested++
		}
	}
	if founded < 5500 || contested < 1000 || ordered < 1000 || without < 500 {
		t.Errorf("%d clusters, %d contested, %d with orders, %d without a minority: too few to show anything", founded, contested, ordered, without)
	}
}
