// SPDX-License-Identifier: Apache-2.0

package podnets

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"coelan.io/coelan/internal/attachment"
)

// parseNetworks reads AnnotationNetworks: a list of namespace/name@interface with commas,
// or a JSON list.
func parseNetworks(text, namespace string) ([]Request, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var list []Request
	var err error
	if strings.ContainsAny(text, `[{"`) {
		list, err = networksFromJSON(text)
	} else {
		list, err = networksFromNames(text)
	}
	if err != nil {
		return nil, err
	}
	var routed int
	for i := range list {
		r := &list[i]
		if r.Namespace == "" {
			r.Namespace = namespace
		}
		if r.Interface == "" {
			r.Interface = fmt.Sprintf("net%d", r.Position)
		}
		if !r.DefaultRoute {
			continue
		}
		if routed > 0 {
			return nil, &Error{r.Annotation, r.Position, "default-route", quote(fmt.Sprint(r.Gateways)),
				fmt.Sprintf("element %d asks for the default route too", routed)}
		}
		routed = r.Position
	}
	return list, nil
}

// networksFromNames reads the short form.
func networksFromNames(text string) ([]Request, error) {
	var list []Request
	position := 0
	for item := range strings.SplitSeq(text, ",") {
		position++
		e := &element{annotation: AnnotationNetworks, position: position}
		r := Request{Annotation: AnnotationNetworks, Position: position}
		item = strings.TrimSpace(item)
		name, ifName, named := strings.Cut(item, "@")
		if namespace, rest, ok := strings.Cut(name, "/"); ok {
			r.Namespace, name = strings.TrimSpace(namespace), rest
			e.checkName("namespace", r.Namespace)
		}
		r.Name, r.Interface = strings.TrimSpace(name), strings.TrimSpace(ifName)
		e.checkName("name", r.Name)
		e.checkInterface("interface", r.Interface)
		if named && r.Interface == "" {
			e.fail("interface", quote(item), "is empty")
		}
		if e.err != nil {
			return nil, e.err
		}
		list = append(list, r)
	}
	return list, nil
}

// networksFromJSON reads the long form.
func networksFromJSON(text string) ([]Request, error) {
	all, err := elements(AnnotationNetworks, []byte(text))
	if err != nil {
		return nil, err
	}
	var list []Request
	for _, e := range all {
		r := Request{Annotation: AnnotationNetworks, Position: e.position,
			Name: e.text("name"), Namespace: e.text("namespace"), Interface: e.interfaceName("interface"),
			Requested: attachment.Requested{MAC: e.mac("mac")}}
		e.checkName("name", r.Name)
		if r.Namespace != "" {
			e.checkName("namespace", r.Namespace)
		}
		r.Addresses, _ = e.addresses("ips", false)
		// An empty list asks for the default route by the network's own gateway.
		r.Gateways, r.DefaultRoute = e.addresses("default-route", false)
		e.onePerFamily("default-route", r.Gateways)
		for _, key := range slices.Sorted(maps.Keys(e.fields)) {
			if !e.read[key] {
				r.Ignored = append(r.Ignored, key)
			}
		}
		if e.err != nil {
			return nil, e.err
		}
		list = append(list, r)
	}
	return list, nil
}
