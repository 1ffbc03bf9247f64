package edge_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/host/edge"
)

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := serve(t, edge.Options{Registerer: registry})
	s.send(t, add("a", 1))
	s.post(t, entityPath+"SendCommand", `{"entityType":"nothing","entityId":"a","command":"b"}`)
	s.sendOne(t, add("a", 1))
	s.sendOne(t, &entityv1.SendCommandRequest{EntityType: "counter", EntityId: "a", Command: "reject"})
	const send, stream = "hostd.entity.v1.EntityService/SendCommand", "hostd.entity.v1.EntityService/SendCommandStream"
	for _, c := range []struct {
		want   float64
		name   string
		labels string
	}{
		{1, "hostd_rpc_calls_total", "code=ok procedure=" + send},
		{1, "hostd_rpc_calls_total", "code=not_found procedure=" + send},
		{2, "hostd_rpc_calls_total", "code=ok procedure=" + stream},
		{1, "hostd_rpc_stream_commands_total", "code=ok"},
		{1, "hostd_rpc_stream_commands_total", "code=failed_precondition"},
		{2, "hostd_rpc_seconds", "procedure=" + send},
		{0, "hostd_rpc_streams", ""},
	} {
		// A stream is counted after its handler has returned, which is slightly
		// after its client has seen the end.
		eventually(t, c.name+" "+c.labels, func() bool { return sample(t, registry, c.name, c.labels) == c.want })
	}
}

// sample returns the value of a metric, or the number of observations.
func sample(t *testing.T, g prometheus.Gatherer, name, labels string) float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() != name || labelText(m) != labels {
				continue
			}
			return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return -1
}

func labelText(m *dto.Metric) string {
	var out []string
	for _, l := range m.GetLabel() {
		out = append(out, l.GetName()+"="+l.GetValue())
	}
	return strings.Join(out, " ")
}
