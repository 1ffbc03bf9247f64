package trial

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

const (
	// minCommands is the number of commands that both modules must have decided
	// before a rule with a percentage applies. minTimes is the corresponding
	// number for rules about durations.
	minCommands = 100
	minTimes    = 1000

	// maxRules and maxRulesBytes bound the rules of a rollout.
	maxRules      = 8
	maxRulesBytes = 256
)

// Rule is a condition under which a rollout is aborted.
type Rule struct {
	text    string
	of      string // subject of the rule
	count   uint64 // upper limit, if share and longest are not used
	share   float64
	shares  bool          // the limit is a percentage
	more    bool          // share is an increase over the older module, in percent
	longest time.Duration // upper limit of p99
}

// Subjects of rules.
const (
	faults     = "faults"
	rejections = "rejections"
	p99        = "p99"
)

func (r Rule) String() string { return r.text }

// ParseRules parses comma-separated rules of the form SUBJECT>VALUE. For the
// subjects faults and rejections, VALUE is a count, a percentage of the newer
// module's commands (5%), or an increase over the older module (+20%). For p99,
// VALUE is a duration (20ms) or an increase (+50%). An empty text has no rules.
func ParseRules(text string) (rules []Rule, err error) {
	if text == "" {
		return nil, nil
	}
	if len(text) > maxRulesBytes {
		return nil, fmt.Errorf("the rules have %d bytes, at most %d are allowed", len(text), maxRulesBytes)
	}
	for one := range strings.SplitSeq(text, ",") {
		r, err := parse(strings.TrimSpace(one))
		if err != nil {
			return nil, err
		}
		if rules = append(rules, r); len(rules) > maxRules {
			return nil, fmt.Errorf("at most %d rules are allowed", maxRules)
		}
	}
	return rules, nil
}

func parse(text string) (r Rule, err error) {
	of, value, ok := strings.Cut(text, ">")
	r = Rule{text: text, of: of}
	percent, isPercent := strings.CutSuffix(value, "%")
	switch {
	case !ok || of != faults && of != rejections && of != p99:
		return r, fmt.Errorf("%.64q is not a rule: it must be faults, rejections or p99, followed by > and a value", text)
	case isPercent:
		percent, r.more = strings.CutPrefix(percent, "+")
		r.share, err = strconv.ParseFloat(percent, 64)
		r.shares = true
		if err != nil || !(r.share >= 0) || r.share > 1e6 || !r.more && r.share > 100 || r.of == p99 && !r.more || strings.HasPrefix(percent, "+") {
			return r, fmt.Errorf("%.64q is not a rule: a percentage of faults or rejections must be between 0%% and 100%%; a + makes it relative to the old module", text)
		}
	case of == p99:
		if r.longest, err = time.ParseDuration(value); err != nil || r.longest <= 0 || r.longest > time.Minute {
			return r, fmt.Errorf("%.64q is not a rule: the value of p99 must be a duration up to a minute, such as 20ms, or a percentage with a +", text)
		}
	default:
		if r.count, err = strconv.ParseUint(value, 10, 63); err != nil {
			return r, fmt.Errorf("%.64q is not a rule: the value of %s must be a count or a percentage", text, of)
		}
	}
	return r, nil
}

// Broken returns how the counts of both modules break the rule, or "" if they
// do not.
func (r Rule) Broken(older, newer *Counts) string {
	if r.of == p99 {
		return r.slow(older, newer)
	}
	was, is := older.Faults, newer.Faults
	if r.of == rejections {
		was, is = older.Rejections, newer.Rejections
	}
	n := float64(newer.Commands)
	switch {
	case !r.shares && is > r.count:
	case !r.shares || newer.Commands < minCommands:
		return ""
	case !r.more && beyond(is, n*r.share/100):
	case r.more && older.Commands >= minCommands && beyond(is, n*(1+r.share/100)*float64(was+1)/float64(older.Commands)):
	default:
		return ""
	}
	return fmt.Sprintf("%s: %d %s in %d commands, the old module had %d in %d", r.text, is, r.of, newer.Commands, was, older.Commands)
}

// slow is Broken for durations.
func (r Rule) slow(older, newer *Counts) string {
	longest := r.longest
	if newer.Commands < minTimes || r.more && older.Commands < minTimes {
		return ""
	}
	if r.more {
		longest = time.Duration(float64(older.P99()) * (1 + r.share/100))
	}
	slower := newer.slower(longest)
	if !beyond(slower, float64(newer.Commands)/100) {
		return ""
	}
	return fmt.Sprintf("%s: %d of %d commands took %v or longer; the p99 of the old module is %v", r.text, slower, newer.Commands, longest, older.P99())
}

// beyond reports whether n exceeds the expected number by more than chance
// explains. That is three standard deviations, and a standard deviation is the
// square root of the expected number.
func beyond(n uint64, expected float64) bool {
	return float64(n) > expected+3*math.Sqrt(expected)
}
