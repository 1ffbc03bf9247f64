package sim

import "strings"

func (c *Counts) fields() map[string]*int {
	return map[string]*int{
		"frames": &c.Frames, "lost": &c.Lost, "doubled": &c.Doubled, "crashes": &c.crashes, "partitions": &c.cuts,
		"pauses": &c.pauses, "silences": &c.silences, "sleeps": &c.sleeps, "wakes": &c.wakes, "steady turns": &c.steady, "stalls": &c.stalls, "transfers": &c.transfers, "leaders": &c.leads, "members": &c.changes,
		"acked": &c.acked, "reads": &c.reads, "unknown": &c.unknown, "resent": &c.resent, "dropped": &c.dropped,
		"rejected": &c.rejected, "bindings": &c.bindings,
		"snapshots": &c.snapshots, "refusals": &c.refusals, "snapshots resumed": &c.resumed, "installs": &c.installs,
		"created": &c.created, "removed": &c.removed, "wiped": &c.wiped,
		"sends": &c.sends, "dead letters": &c.dead, "sends turned down": &c.turned, "sends lost": &c.strayed, "sends doubled": &c.repeated, "timers": &c.fired, "cut histories": &c.shortened,
		"lies of stores": &c.lies, "lies found": &c.caught, "loops that stand still": &c.stands,
		"disks put back": &c.back, "older disks found": &c.found, "rows left out of scans": &c.hidden,
	}
}

func (c *Counts) add(o *Counts) {
	from := o.fields()
	for name, n := range c.fields() {
		*n += *from[name]
	}
}

// missing returns the names of the counters that are zero.
func (c *Counts) missing() string {
	var names []string
	for _, name := range sorted(c.fields()) {
		if *c.fields()[name] == 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}
