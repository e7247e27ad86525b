// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
)

// Bounds of what an agent says is refused: a stolen token writes no more than this into the
// conditions of objects.
const (
	MaxRefusals = 64
	maxReason   = 256
	maxName     = 253 // of an object of the API
)

// refusable are the kinds of objects that a Refusal may name.
var refusable = map[intent.PolicyKind]bool{
	intent.NetworkPolicy: true, intent.ClusterNetworkPolicy: true, intent.SecurityGroup: true,
	intent.PolicyKind(intent.KindNetwork): true, intent.PolicyKind(intent.KindRouter): true,
}

// Refusable reports whether a Refusal may name objects of that kind.
func Refusable(kind intent.PolicyKind) bool { return refusable[kind] }

// RefusalsMessage is a list as it is sent: the first MaxRefusals, with long reasons cut.
func RefusalsMessage(list []policy.Refusal) *Refusals {
	m := &Refusals{}
	for _, r := range list[:min(len(list), MaxRefusals)] {
		m.Objects = append(m.Objects, &Refusal{Object: refMessage(r.Object), Reason: printable(r.Reason)})
	}
	return m
}

// RefusalsOf reads a list that was received. Objects of kinds that this release does not know are
// left out.
func RefusalsOf(m *Refusals) ([]policy.Refusal, error) {
	if n := len(m.GetObjects()); n > MaxRefusals {
		return nil, fmt.Errorf("%d objects are refused: more than %d", n, MaxRefusals)
	}
	var list []policy.Refusal
	for _, o := range m.GetObjects() {
		ref := intent.PolicyRef{
			Kind:      intent.PolicyKind(o.GetObject().GetKind()),
			Namespace: o.GetObject().GetNamespace(), Name: o.GetObject().GetName(),
		}
		switch {
		case ref.Kind == "" || ref.Name == "":
			return nil, errors.New("a refused object has no kind or no name")
		case len(ref.Name) > maxName || len(ref.Namespace) > maxName:
			return nil, errors.New("the name of a refused object is too long")
		case len(o.GetReason()) > maxReason:
			return nil, fmt.Errorf("%s: the reason has more than %d bytes", ref, maxReason)
		}
		if refusable[ref.Kind] {
			list = append(list, policy.Refusal{Object: ref, Reason: printable(o.GetReason())})
		}
	}
	return list, nil
}

// printable is a text for a condition: of one line, and not too long.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}
