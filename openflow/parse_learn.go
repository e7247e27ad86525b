// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"fmt"
	"strings"
)

// parseLearn reads the arguments of learn.
func parseLearn(s string) (Action, error) {
	a := Learn{Table: 1, Priority: DefaultPriority}
	for _, item := range splitItems(s) {
		if err := a.parseItem(item); err != nil {
			return nil, fmt.Errorf("%s: %w", item, err)
		}
	}
	return a, nil
}

func (a *Learn) parseItem(item string) (err error) {
	name, value, hasValue := strings.Cut(item, "=")
	switch name {
	case "table":
		return parseNum(value, &a.Table)
	case "priority":
		return parseNum(value, &a.Priority)
	case "cookie":
		return parseNum(value, &a.Cookie)
	case "idle_timeout":
		return parseNum(value, &a.IdleTimeout)
	case "hard_timeout":
		return parseNum(value, &a.HardTimeout)
	case "fin_idle_timeout":
		return parseNum(value, &a.FinIdleTimeout)
	case "fin_hard_timeout":
		return parseNum(value, &a.FinHardTimeout)
	case "limit":
		return parseNum(value, &a.Limit)
	case "send_flow_rem":
		a.SendFlowRem = true
		return nil
	case "delete_learned":
		a.DeleteLearned = true
		return nil
	case "result_dst":
		a.ResultDst, err = parseSubfield(value)
		return err
	}
	spec, err := parseLearnSpec(item, name, value, hasValue)
	a.Specs = append(a.Specs, spec)
	return err
}

// parseLearnSpec reads what a learned flow matches or does.
func parseLearnSpec(item, name, value string, hasValue bool) (s LearnSpec, err error) {
	if src, ok := strings.CutPrefix(item, "output:"); ok {
		f, err := parseSubfield(src)
		return LearnOutputTo(f), err
	}
	if load, ok := strings.CutPrefix(item, "load:"); ok {
		from, to, _ := strings.Cut(load, "->")
		return learnSpec(LearnLoad, to, from)
	}
	if !hasValue {
		value = name
	}
	return learnSpec(LearnMatch, name, value)
}

// learnSpec makes a spec of the destination's and the source's text; the source is a
// field or a constant.
func learnSpec(k LearnKind, dst, src string) (s LearnSpec, err error) {
	s.Kind = k
	if s.Dst, err = parseSubfield(dst); err != nil {
		return s, err
	}
	if from, err := parseSubfield(src); err == nil {
		s.Src = from
		return s, nil
	}
	if k == LearnMatch && s.Dst == s.Dst.Field.All() {
		v, err := parseFieldValue(s.Dst.Field, src)
		s.value = v.value
		return s, err
	}
	s.value, err = parseUint128(FieldXXReg0, src)
	return s, err
}
