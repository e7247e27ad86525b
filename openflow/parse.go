// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseFlow reads a flow as ovs-ofctl prints it (counters are skipped) or as its add-flow
// takes it, such as "table=5,priority=100,tcp,tp_dst=80 actions=output:3". What the text
// does not say has ovs-ofctl's default, for instance priority 32768. It is meant for tests and
// debugging: it knows the fields and actions of this package, by the names that are printed.
func ParseFlow(s string) (Flow, error) {
	f := Flow{Priority: DefaultPriority}
	head, actions, _ := cutActions(s)
	p := flowParser{flow: &f}
	for _, item := range splitItems(head) {
		if err := p.item(item); err != nil {
			return f, fmt.Errorf("flow %q: %w", s, err)
		}
	}
	f.Match = p.match.build()
	if err := f.parseInstructions(actions); err != nil {
		return f, fmt.Errorf("flow %q: %w", s, err)
	}
	return f, nil
}

// ParseMatch reads a match as ovs-ofctl prints it, such as "tcp,nw_dst=10.0.0.0/8,tp_dst=80".
func ParseMatch(s string) (Match, error) {
	var p matchParser
	for _, item := range splitItems(s) {
		known, err := p.item(item)
		if err == nil && !known {
			err = fmt.Errorf("unknown field %q", item)
		}
		if err != nil {
			return Match{}, fmt.Errorf("match %q: %w", s, err)
		}
	}
	return p.build(), nil
}

// ParseActions reads actions as ovs-ofctl prints them, such as "dec_ttl,output:3". "drop" is none.
func ParseActions(s string) ([]Action, error) {
	var list []Action
	for _, item := range splitItems(s) {
		if item == "drop" {
			continue
		}
		a, err := parseAction(item)
		if err != nil {
			return nil, err
		}
		list = append(list, a)
	}
	return list, nil
}

// cutActions cuts s at "actions=".
func cutActions(s string) (head, actions string, found bool) {
	const word = "actions="
	i := strings.Index(s, word)
	if i < 0 {
		return s, "", false
	}
	return strings.TrimRight(s[:i], " ,"), s[i+len(word):], true
}

// splitItems splits s at commas and spaces outside of brackets.
func splitItems(s string) (items []string) {
	depth, start := 0, 0
	for i := 0; i <= len(s); i++ {
		if i < len(s) {
			switch s[i] {
			case '(', '[':
				depth++
				continue
			case ')', ']':
				depth--
				continue
			case ',', ' ', '\n', '\t':
				if depth > 0 {
					continue
				}
			default:
				continue
			}
		}
		if item := s[start:i]; item != "" {
			items = append(items, item)
		}
		start = i + 1
	}
	return items
}

// flowParser reads what precedes the actions.
type flowParser struct {
	flow  *Flow
	match matchParser
}

// countersOfDump are what a dump says about a flow besides the flow.
var countersOfDump = map[string]bool{
	"duration": true, "n_packets": true, "n_bytes": true, "idle_age": true, "hard_age": true,
}

func (p *flowParser) item(item string) error {
	name, value, hasValue := strings.Cut(item, "=")
	f := p.flow
	switch name {
	case "table":
		return parseNum(value, &f.Table)
	case "priority":
		return parseNum(value, &f.Priority)
	case "cookie":
		return parseNum(value, &f.Cookie)
	case "idle_timeout":
		return parseNum(value, &f.IdleTimeout)
	case "hard_timeout":
		return parseNum(value, &f.HardTimeout)
	case "importance":
		return parseNum(value, &f.Importance)
	}
	for i, flag := range flowFlagNames {
		if item == flag {
			f.Flags |= 1 << i
			return nil
		}
	}
	if known, err := p.match.item(item); known || err != nil {
		return err
	}
	if hasValue && countersOfDump[name] {
		return nil
	}
	return fmt.Errorf("unknown field %q", item)
}

// parseNum reads a number in decimal, or in hexadecimal with 0x.
func parseNum[T ~uint8 | ~uint16 | ~uint32 | ~uint64](s string, into *T) error {
	v, err := strconv.ParseUint(s, 0, 64)
	if err != nil || uint64(T(v)) != v {
		return fmt.Errorf("%q is not a number up to %d", s, ^T(0))
	}
	*into = T(v)
	return nil
}

// parseInstructions reads what follows "actions=".
func (f *Flow) parseInstructions(s string) error {
	for _, item := range splitItems(s) {
		name, arg := cutArg(item)
		var err error
		switch name {
		case "drop":
		case "goto_table":
			err = parseNum(arg, &f.Goto)
		case "clear_actions":
			f.ClearActions = true
		case "write_actions":
			f.WriteActions, err = ParseActions(arg)
		case "write_metadata":
			v, mask, masked := strings.Cut(arg, "/")
			f.MetadataMask = 1<<64 - 1
			if err = parseNum(v, &f.Metadata); err == nil && masked {
				err = parseNum(mask, &f.MetadataMask)
			}
		default:
			var a Action
			if a, err = parseAction(item); err == nil {
				f.Actions = append(f.Actions, a)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// cutArg splits "name:arg" and "name(arg)".
func cutArg(s string) (name, arg string) {
	i := strings.IndexAny(s, ":(")
	switch {
	case i < 0:
		return s, ""
	case s[i] == '(':
		return s[:i], strings.TrimSuffix(s[i+1:], ")")
	}
	return s[:i], s[i+1:]
}
