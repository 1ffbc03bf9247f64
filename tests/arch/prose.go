package arch

import (
	"regexp"
	"strings"
)

// deniedPhrases are phrases that a native reader has to read twice, because
// they are rare in English or hide the noun. CONTRIBUTING.md lists the phrases
// to use instead.
var deniedPhrases = regexp.MustCompile(`(?i)\b(?:` + strings.Join([]string{
	`(?:is|are) told`,       // notify, report, return
	`anew`,                  // again
	`pass(?:es|ed)? over`,   // skip
	`goes on`, `go on with`, // continue
	`but for`,                          // except
	`in the place of`,                  // instead of
	`of (?:before|now)`,                // previous, current
	`beside each other`,                // concurrently
	`another one than`,                 // a different X
	`whoever`,                          // the caller, the node
	`what is [^.;:]{1,40} is`,          // name the noun
	`who [^.;:]{1,30} is to`,           // name the noun
	`who [^.;:]{1,30}s is`,             // name the noun
	`where nothing`,                    // if nothing
	`are those of`, `is no longer one`, // repeat the noun
	`gives? up its`, // release
}, "|") + `)\b`)

// deniedTerms are words that this project invented for concepts for which the
// field has a term. The glossary lists both.
var deniedTerms = regexp.MustCompile(`(?i)\b(?:` + strings.Join([]string{
	`lanes?`,            // executor
	`overseer`,          // watchdog
	`handovers?`,        // preemption, leadership transfer
	`parked`,            // quarantined
	`pledges?`,          // bootstrap vote
	`probation`,         // stale-disk check
	`vouch(?:e[sd])?`,   // attestation, attest
	`hearsay`,           // gossip
	`read rounds?`,      // ReadIndex
	`verdicts?`,         // apply result
	`overlay`,           // memtable
	`watermarks?`,       // durable index
	`dormant`, `folded`, // hibernated, replayed
	`remembered entit(?:y|ies)`, `autostart`, // always-on
	`muted`, `withheld`, // suspended, write-paused
	`remarks`, // warnings
}, "|") + `)\b`)

// deniedInTexts are phrases that errors, log messages, help and reports must
// not use, although some of them are good English in a longer explanation: such
// a text is read without context and often under stress, so it must name the
// object and use the field's term.
var deniedInTexts = regexp.MustCompile(`(?i)\b(?:` + strings.Join([]string{
	`any more`,               // no longer
	`again and again`,        // repeatedly
	`for want of`,            // because of missing
	`st(?:ands?|ood) still`,  // is stuck, has stalled
	`who calls`, `nobody is`, // the caller, there is no
	`came of it`,           // the result
	`on (?:its|their) way`, // undelivered, in progress
	`go on`, `went on`,     // continue
	`is another`, `of another`, `an?other than`, // different, belongs to a different
	`g[ai]ven? up`,                // abandoned
	`looked at`,                   // checked
	`is there (?:twice|already)`,  // is duplicated, exists
	`is not known`,                // is unknown
	`do(?:es)? not fit`,           // does not match, is incompatible
	`did not say`, `does not say`, // did not report
	`for ever`, `put down`, `found(?:s|ing) a cluster`, // forever, declared down, bootstrap
}, "|") + `)\b`)
