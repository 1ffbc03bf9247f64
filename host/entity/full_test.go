package entity

import (
	"testing"
)

// TestEntitiesPerInstanceAreBounded checks that an instance with the maximum
// number of entities gets no more, however small they are.
func TestEntitiesPerInstanceAreBounded(t *testing.T) {
	j := newBench()
	j.fill(maxInstanceEntities + 1)
	all := j.core.residents.pools.All()
	if len(all) != 2 || all[0].Resident() != maxInstanceEntities || all[1].Resident() != 1 {
		t.Fatalf("%d instances, the first with %d entities", len(all), all[0].Resident())
	}
}
