package moduleapi

import (
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/host/modules"
)

// partMessages converts the parts to API messages.
func partMessages(parts []modules.ServedPart) []*modulev1.Part {
	out := make([]*modulev1.Part, len(parts))
	for i, p := range parts {
		out[i] = &modulev1.Part{EntityType: p.EntityType, Kind: modulev1.Part_KIND_SHADOW, Share: p.Share}
		r := p.Rollout
		if r == nil {
			continue
		}
		out[i].Kind, out[i].State = modulev1.Part_KIND_ROLLOUT, rolloutStates[r.State]
		switch {
		case !r.IsServing():
			out[i].Kind = modulev1.Part_KIND_VERIFICATION
		case !r.IsActive():
			out[i].Kind = modulev1.Part_KIND_REMAINDER
		}
		out[i].Share, out[i].Prefix, out[i].RemainingEntities = r.Share, r.Prefix, uint32(len(r.Stay))
	}
	return out
}
