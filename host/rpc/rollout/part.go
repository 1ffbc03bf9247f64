package rollout

import (
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/sharding/meta"
)

// Part is what a module does of an entity type that another one serves: it is
// on its way to serve it, or decides a share of its commands too.
type Part struct {
	EntityType string
	Rollout    *meta.Rollout // nil: it decides
	Share      uint32        // of the commands that it decides
}

// Parts are those of a module that has the entity types, in their order.
func Parts(view *meta.View, digest meta.Digest, entityTypes []string) (out []Part) {
	for _, name := range entityTypes {
		b, _ := view.Binding(name)
		if r := b.Rollout; r != nil && r.Digest == digest {
			out = append(out, Part{EntityType: name, Rollout: r})
		}
		if s, ok := meta.ShadowOf(view, name); ok && s.Digest == digest && b.Digest != digest {
			out = append(out, Part{EntityType: name, Share: s.Share})
		}
	}
	return out
}

// Messages says what the parts are.
func Messages(parts []Part) []*modulev1.Part {
	out := make([]*modulev1.Part, len(parts))
	for i, p := range parts {
		out[i] = &modulev1.Part{EntityType: p.EntityType, Kind: modulev1.Part_KIND_SHADOW, Share: p.Share}
		r := p.Rollout
		if r == nil {
			continue
		}
		out[i].Kind, out[i].State = modulev1.Part_KIND_ROLLOUT, stateOf(r.State)
		if !r.Active() {
			out[i].Kind = modulev1.Part_KIND_STAY
		}
		out[i].Share, out[i].Prefix, out[i].Stay = r.Share, r.Prefix, uint32(len(r.Stay))
	}
	return out
}
