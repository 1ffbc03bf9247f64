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

// Bounds of a profile. Samples beyond them are counted under the innermost
// function alone.
const (
	profileFrames = 64
	profileStacks = 20_000
	profileBytes  = 16 << 20 // bytes of function names
)

// Profile records by sampling where guests spend their fuel: about every
// sliceFuel units it takes the guest's call stack. It is safe for concurrent
// use.
type Profile struct {
	mu     sync.Mutex
	stacks map[string]*ProfiledStack
	bytes  int
	pick   rand.PCG
}

// ProfiledStack is the fuel spent under one call stack.
type ProfiledStack struct {
	// Functions are the names on the stack, innermost first. A function without a
	// name is identified by its index in the module.
	Functions []string
	Samples   int64
	Fuel      int64 // estimate in units, from the samples
}

// NewProfile returns an empty profile. seed determines when samples are taken.
func NewProfile(seed uint64) *Profile {
	p := &Profile{stacks: make(map[string]*ProfiledStack)}
	p.pick.Seed(seed, seed)
	return p
}

// Stacks returns the stacks recorded so far, the most expensive first.
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

// next returns the fuel until the next sample. It is random so that sampling
// does not align with periodic behavior of a guest.
func (p *Profile) next() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return 1 + int64(p.pick.Uint64()%(2*sliceFuel))
}

// add counts a sample that represents the given fuel.
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
		s = p.stacks[key] // bounded by the number of functions in the modules
	}
	if s == nil {
		s = &ProfiledStack{Functions: slices.Clone(functions)}
		p.stacks[key] = s
		p.bytes += len(key)
	}
	s.Samples++
	s.Fuel += fuel
}

// sampling is the state of an instance that is being profiled.
type sampling struct {
	profile *Profile
	until   int64 // fuel until the next sample
	passed  int64 // fuel since the last sample
	given   int64 // value of the counter at the last call of spend
	whole   int64 // fuel since the last full slice was counted
}

// Sample records the fuel of the following calls in a profile, until it is
// called with a different profile or nil. Profiling changes neither the result
// nor the fuel of a call.
func (g *Instance) Sample(p *Profile) {
	if s := &g.meter.sampling; s.profile != p {
		if *s = (sampling{profile: p}); p != nil {
			s.until = p.next()
		}
	}
}

// spend accounts for the fuel used since its last call; left is the value of
// the guest's counter.
func (s *sampling) spend(left int64) {
	spent := s.given - left
	s.given = left
	s.until -= spent
	s.passed += spent
	s.whole += spent
}

// slice limits a slice so that it ends at the next sample.
func (s *sampling) slice(slice int64) int64 {
	if s.profile != nil {
		slice = min(slice, max(s.until, 1))
		s.given = slice
	}
	return slice
}

// takeSlice reports whether a full slice, maybe given in several parts, was
// spent since it last returned true.
func (s *sampling) takeSlice() bool {
	if s.profile == nil {
		return true
	}
	if s.whole < sliceFuel {
		return false
	}
	s.whole %= sliceFuel
	return true
}

// sampler is called before each refuel with the stack of the calling guest.
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
		if index := f.Index() - 1; f.GoFunction() == nil && index < g.module.functions { // convert to the module's own indices, and skip functions that metering added
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

// nameOf returns the name of a function in a profile.
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
