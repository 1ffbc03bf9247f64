package host

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostd/hostd/host/signing"
)

// openTrust loads the keys whose module signatures the node accepts, and
// watches their file.
func (n *Node) openTrust() (err error) {
	n.guests.trust, err = signing.Open(signing.Options{
		Mode: signing.Mode(n.cfg.ModuleSignatures), File: n.cfg.ModuleTrustFile, Logger: n.logger, Registerer: n.metrics.registry,
	})
	if err == nil {
		n.lifecycle.watch("trusted keys", n.guests.trust.Run)
	}
	return err
}

// warnings returns warnings about a node that is ready but does not serve
// everything.
func (n *Node) warnings() string {
	if !n.joined.Load() {
		return ""
	}
	if lacking := n.shardsWithoutLeader(); lacking != "" {
		return strings.TrimSpace(lacking + "\n" + n.unsignedTypes())
	}
	return n.unsignedTypes()
}

// unsignedTypes lists the entity types that are not served because their modules
// lack an accepted signature.
func (n *Node) unsignedTypes() string {
	var named []string
	for _, u := range n.guests.modules.Types.UnsignedTypes() {
		switch {
		case !u.Refused:
		case len(named) == maxNamed:
			return "entity types are not served because of the signatures of their modules: " + strings.Join(named, ", ") + ", ..."
		default:
			named = append(named, fmt.Sprintf("%s (%s)", u.EntityType, u.Reason))
		}
	}
	if named == nil {
		return ""
	}
	return "entity types are not served because of the signatures of their modules: " + strings.Join(named, ", ")
}

// signatureCollector exports the entity types whose modules lack an accepted
// signature.
type signatureCollector struct{ n *Node }

var typeUnsigned = prometheus.NewDesc("hostd_type_signature_faults", "1 for an entity type whose module has no trusted signature on this node, by reason; with module-signatures: require, the node does not serve it.", []string{"entity_type", "reason"}, nil)

// Describe implements prometheus.Collector.
func (c signatureCollector) Describe(out chan<- *prometheus.Desc) { out <- typeUnsigned }

// Collect implements prometheus.Collector.
func (c signatureCollector) Collect(out chan<- prometheus.Metric) {
	for _, u := range c.n.guests.modules.Types.UnsignedTypes() {
		out <- prometheus.MustNewConstMetric(typeUnsigned, prometheus.GaugeValue, 1, u.EntityType, string(u.Reason))
	}
}
