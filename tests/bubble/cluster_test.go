package bubble

import (
	"fmt"
	"testing"

	"github.com/hostd/hostd/api/client"
)

func TestFoundAndServe(t *testing.T) {
	run(t, options{nodes: 3, shards: 4}, func(t *testing.T, w *world) {
		w.found()
		c := w.client()
		if _, err := c.Upload(t.Context(), counterModule(t), true); err != nil {
			t.Fatal(err)
		}
		for i := range 12 {
			r, err := w.at(1+i%3).Send(t.Context(), client.Command{EntityType: "counter", EntityID: fmt.Sprint(i), Name: "add", Data: []byte(`{"amount":1}`)})
			if err != nil || r.Sequence != 1 {
				t.Errorf("%+v, %v", r, err)
			}
		}
	})
}
