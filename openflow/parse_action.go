// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// actionParsers read the argument of an action, by the action's name. It is filled in by
// init, since that of clone needs it.
var actionParsers map[string]func(arg string) (Action, error)

func init() {
	actionParsers = map[string]func(string) (Action, error){
		"group": func(s string) (Action, error) {
			var n uint32
			err := parseNum(s, &n)
			return ToGroup(n), err
		},
		"meter": func(s string) (Action, error) {
			var n uint32
			err := parseNum(s, &n)
			return ToMeter(n), err
		},
		"set_queue": func(s string) (Action, error) {
			var n uint32
			err := parseNum(s, &n)
			return SetQueue(n), err
		},
		"push_vlan": func(s string) (Action, error) {
			var n uint16
			err := parseNum(s, &n)
			return PushVLAN(n), err
		},
		"push_mpls": func(s string) (Action, error) {
			var n uint16
			err := parseNum(s, &n)
			return PushMPLS(n), err
		},
		"pop_mpls": func(s string) (Action, error) {
			var n uint16
			err := parseNum(s, &n)
			return PopMPLS(n), err
		},
		"push":             func(s string) (Action, error) { f, err := parseSubfield(s); return Push(f), err },
		"pop":              func(s string) (Action, error) { f, err := parseSubfield(s); return Pop(f), err },
		"note":             func(s string) (Action, error) { b, err := parseBytes(s); return Note(b), err },
		"clone":            func(s string) (Action, error) { list, err := ParseActions(s); return Clone(list...), err },
		"output":           parseOutput,
		"set_field":        parseSetField,
		"move":             parseMove,
		"resubmit":         parseResubmit,
		"conjunction":      parseConjunction,
		"ct":               parseCT,
		"controller":       parseController,
		"learn":            parseLearn,
		"check_pkt_larger": parseCheckPktLarger,
		"multipath":        parseMultipath,
		"fin_timeout":      parseFinTimeout,
		"delete_field": func(s string) (Action, error) {
			f := fieldsByName[s]
			if !f.isTunMetadata() {
				return nil, fmt.Errorf("%q is not a tunnel option", s)
			}
			return DeleteField(f), nil
		},
	}
}

// parseAction reads one action.
func parseAction(s string) (Action, error) {
	for a := range numSimple {
		if s == simpleActions[a].name {
			return a, nil
		}
	}
	name, arg := cutArg(s)
	if parse := actionParsers[name]; parse != nil {
		a, err := parse(arg)
		if err != nil {
			return nil, fmt.Errorf("action %q: %w", s, err)
		}
		return a, nil
	}
	port, err := parsePort(name)
	if err != nil {
		return nil, fmt.Errorf("unknown action %q", s)
	}
	a := Output(port).(OutputAction)
	if arg != "" {
		err = parseNum(arg, &a.MaxLen)
	}
	return a, err
}

// parseSubfield reads such as NXM_NX_REG0[0..3], reg0[5] or reg0[].
func parseSubfield(s string) (Subfield, error) {
	name, bits, _ := strings.Cut(strings.TrimSuffix(s, "]"), "[")
	f := fieldsByName[name]
	if f == fieldNone {
		return Subfield{}, fmt.Errorf("unknown field %q", s)
	}
	if bits == "" {
		return f.All(), nil
	}
	first, last, isRange := strings.Cut(bits, "..")
	lo, err := strconv.Atoi(first)
	hi := lo
	if err == nil && isRange {
		hi, err = strconv.Atoi(last)
	}
	if err != nil || lo < 0 || hi < lo || hi >= f.Width() {
		return Subfield{}, fmt.Errorf("%q names no bits of a field of %d", s, f.Width())
	}
	return f.Bits(lo, hi), nil
}

// parseBytes reads such as 01.0a.ff.
func parseBytes(s string) ([]byte, error) { return hex.DecodeString(strings.ReplaceAll(s, ".", "")) }

func parseOutput(s string) (Action, error) {
	if port, n, ok := strings.Cut(s, ",max_len="); ok {
		var a OutputTruncAction
		var err error
		if a.Port, err = parsePort(strings.TrimPrefix(port, "port=")); err == nil {
			err = parseNum(n, &a.MaxLen)
		}
		return a, err
	}
	if strings.Contains(s, "[") {
		f, err := parseSubfield(s)
		return OutputField(f), err
	}
	port, err := parsePort(s)
	return Output(port), err
}

func parseSetField(s string) (Action, error) {
	value, name, ok := strings.Cut(s, "->")
	f := fieldsByName[name]
	if !ok || f == fieldNone {
		return nil, fmt.Errorf("unknown field %q", name)
	}
	v, err := parseFieldValue(f, value)
	return SetField(v), err
}

func parseMove(s string) (Action, error) {
	from, to, _ := strings.Cut(s, "->")
	src, err := parseSubfield(from)
	if err != nil {
		return nil, err
	}
	dst, err := parseSubfield(to)
	if err == nil && src.N != dst.N {
		err = fmt.Errorf("%d bits into %d", src.N, dst.N)
	}
	return Move(src, dst), err
}

func parseResubmit(s string) (Action, error) {
	a := ResubmitAction{InPort: PortInPort, Table: TableAll}
	args := strings.Split(s, ",")
	var err error
	if args[0] != "" {
		a.InPort, err = parsePort(args[0])
	}
	if len(args) > 1 && args[1] != "" && err == nil {
		err = parseNum(args[1], &a.Table)
	}
	a.CT = len(args) > 2 && args[2] == "ct"
	return a, err
}

func parseConjunction(s string) (Action, error) {
	var a ConjunctionAction
	_, err := fmt.Sscanf(s, "%d,%d/%d", &a.ID, &a.Clause, &a.NClauses)
	return a, err
}

func parseController(s string) (Action, error) {
	var a Controller
	for _, item := range splitItems(s) {
		name, value, _ := strings.Cut(item, "=")
		var err error
		switch name {
		case "reason":
			i := slices.Index(reasonNames, value)
			if i < 0 {
				err = fmt.Errorf("unknown reason %q", value)
			}
			a.Reason = PacketInReason(i)
		case "max_len":
			var n uint16
			err = parseNum(value, &n)
			a.setMaxLen(n)
		case "id":
			err = parseNum(value, &a.ID)
		case "userdata":
			var b []byte
			b, err = parseBytes(value)
			a.Userdata = string(b)
		case "pause":
			a.Pause = true
		case "meter_id":
			err = parseNum(value, &a.Meter)
		default:
			err = fmt.Errorf("unknown %q", item)
		}
		if err != nil {
			return nil, err
		}
	}
	return a, nil
}

func parseCheckPktLarger(s string) (Action, error) {
	n, dst, _ := strings.Cut(s, ")->")
	f, err := parseSubfield(dst)
	a := CheckPktLargerAction{Dest: f}
	if err == nil {
		err = parseNum(n, &a.Len)
	}
	return a, err
}

func parseMultipath(s string) (Action, error) {
	args := splitItems(s)
	if len(args) != 6 {
		return nil, fmt.Errorf("%d arguments, not 6", len(args))
	}
	fields, alg := slices.Index(hashFieldsNames, args[0]), slices.Index(algorithmNames, args[2])
	if fields < 0 || alg < 0 {
		return nil, fmt.Errorf("unknown fields or algorithm")
	}
	a := MultipathAction{Fields: HashFields(fields), Algorithm: MultipathAlgorithm(alg)}
	for i, err := range []error{parseNum(args[1], &a.Basis), parseNum(args[3], &a.Links), parseNum(args[4], &a.Arg)} {
		if err != nil {
			return nil, fmt.Errorf("argument %d: %w", i, err)
		}
	}
	var err error
	a.Dest, err = parseSubfield(args[5])
	return a, err
}

func parseFinTimeout(s string) (Action, error) {
	var a FinTimeoutAction
	for _, item := range splitItems(s) {
		name, value, _ := strings.Cut(item, "=")
		into := &a.Idle
		if name == "hard_timeout" {
			into = &a.Hard
		}
		if err := parseNum(value, into); err != nil {
			return nil, err
		}
	}
	return a, nil
}
