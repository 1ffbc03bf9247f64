package testkit

import (
	"bufio"
	"net/http"
	"strconv"
	"strings"
)

// Metrics returns the metrics of the running node. A key is the name with its
// labels, as the node prints it.
func (n *Node) Metrics() map[string]float64 {
	n.t.Helper()
	res, err := http.Get(n.API() + "/metrics")
	if err != nil {
		n.t.Fatal(err)
	}
	defer res.Body.Close()
	out := make(map[string]float64)
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		at := strings.LastIndexByte(lines.Text(), ' ')
		if v, err := strconv.ParseFloat(lines.Text()[at+1:], 64); err == nil && at > 0 {
			out[lines.Text()[:at]] = v
		}
	}
	if err := lines.Err(); err != nil {
		n.t.Fatal(err)
	}
	return out
}
