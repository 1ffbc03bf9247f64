package guest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

// Bounds of a profile: what goes beyond them is counted under the function that
// spends alone.
const (
	profileFrames = 64
	profileStacks = 20_000
	profileBytes  = 16 << 20 // of names
)

// Profile is where guests spend their fuel, by samples: about every sliceFuel
// units, the calls that a guest is in. It is safe for concurrent use.
type Profile struct {
	mu     sync.Mutex
	stacks map[string]*ProfiledStack
	bytes  int
	pick   rand.PCG
}

// ProfiledStack is what was spent in one function, called by certain others.
type ProfiledStack struct {
	// Functions are the names of the functions, the one that spends first; of
	// those without a name it is their index in the module.
	Functions []string
	Samples   int64
	Fuel      int64 // units, in expectation
}

// NewProfile returns one without samples; seed says when they are taken.
func NewProfile(seed uint64) *Profile {
	p := &Profile{stacks: make(map[string]*ProfiledStack)}
	p.pick.Seed(seed, seed)
	return p
}

// Stacks are those of the profile so far, those that spend most first.
func (p *Profile) Stacks() []ProfiledStack {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]ProfiledStack, 0, len(p.stacks))
	for _, key := range slices.Sorted(maps.Keys(p.stacks)) {
		out = append(out, *p.stacks[key])
	}
	slices.SortStableFunc(out, func(a, b ProfiledStack) int { return int(min(max(b.Fuel-a.Fuel, -1), 1)) })
	return out
}

// next is after how much fuel the next sample is taken. It is random, so that
// nothing that a guest does again and again is always met at the same place.
func (p *Profile) next() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return 1 + int64(p.pick.Uint64()%(2*sliceFuel))
}

// add counts a sample that stands for so much fuel.
func (p *Profile) add(functions []string, fuel int64) {
	key := ""
	for _, f := range functions {
		key += f + "\x00"
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stacks[key]
	if s == nil && (len(p.stacks) >= profileStacks || p.bytes+len(key) > profileBytes) {
		functions = functions[:1]
		key = functions[0] + "\x00"
		s = p.stacks[key] // of these there are as many as the modules have functions
	}
	if s == nil {
		s = &ProfiledStack{Functions: slices.Clone(functions)}
		p.stacks[key] = s
		p.bytes += len(key)
	}
	s.Samples++
	s.Fuel += fuel
}

// sampling is what an instance has of a profile that it is part of.
type sampling struct {
	profile *Profile
	until   int64 // fuel until the next sample
	passed  int64 // fuel since the last
	given   int64 // of the slice that is being spent
	whole   int64 // fuel since a whole slice was counted
}

// Sample has what the calls after it spend counted in a profile, until it is
// called with another, or with nil. What a call returns and costs stays the
// same.
func (g *Instance) Sample(p *Profile) {
	if s := &g.meter.sampling; s.profile != p {
		if *s = (sampling{profile: p}); p != nil {
			s.until = p.next()
		}
	}
}

// spend takes what is gone of the slice since it was asked last.
func (s *sampling) spend(left int64) {
	spent := s.given - left
	s.given = left
	s.until -= spent
	s.passed += spent
	s.whole += spent
}

// slice is how much of a slice may be given until the next sample is due.
func (s *sampling) slice(slice int64) int64 {
	if s.profile != nil {
		slice = min(slice, max(s.until, 1))
		s.given = slice
	}
	return slice
}

// turned reports that a whole slice was spent since it last said so, in several
// parts maybe.
func (s *sampling) turned() bool {
	if s.profile == nil {
		return true
	}
	if s.whole < sliceFuel {
		return false
	}
	s.whole %= sliceFuel
	return true
}

// sampler is told of each call of refuel with the stack of the guest that
// calls it.
type sampler struct{}

// NewFunctionListener implements experimental.FunctionListenerFactory.
func (s sampler) NewFunctionListener(api.FunctionDefinition) experimental.FunctionListener { return s }

// Before implements experimental.FunctionListener.
func (sampler) Before(ctx context.Context, _ api.Module, _ api.FunctionDefinition, _ []uint64, stack experimental.StackIterator) {
	g := ctx.(*callContext).instance
	m := &g.meter
	s := &m.sampling
	if s.profile == nil {
		return
	}
	if s.spend(int64(m.fuel.Get())); s.until > 0 {
		return
	}
	var names [profileFrames]string
	n := 0
	for n < len(names) && stack.Next() {
		f := stack.Function().Definition()
		if index := f.Index() - 1; f.GoFunction() == nil && index < g.module.functions { // refuel is the first, and what calls it the last
			names[n] = nameOf(f.Name(), index)
			n++
		}
	}
	if n > 0 {
		s.profile.add(names[:n], s.passed)
	}
	s.passed, s.until = 0, s.profile.next()
}

// profiledName bounds the names of functions, in bytes.
const profiledName = 256

// nameOf is what a function is called in a profile.
func nameOf(name string, index uint32) string {
	if name == "" {
		return fmt.Sprint("function ", index)
	}
	return strings.ToValidUTF8(name[:min(len(name), profiledName)], "?")
}

// After implements experimental.FunctionListener.
func (sampler) After(context.Context, api.Module, api.FunctionDefinition, []uint64) {}

// Abort implements experimental.FunctionListener.
func (sampler) Abort(context.Context, api.Module, api.FunctionDefinition, error) {}
