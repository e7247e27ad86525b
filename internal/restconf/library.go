// SPDX-License-Identifier: Apache-2.0

package restconf

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"coelan.io/coelan/internal/restconf/datatree"
)

// libraryVersion is the revision of ietf-yang-library that RFC 8040, section 3.3.3 asks for.
const libraryVersion = "2016-06-21"

// modelOf is a module of the yang folder.
type modelOf struct{ name, revision, namespace string }

// models are the modules that data is served of.
var models = []modelOf{
	{"coelan", "2026-11-26", "urn:coelan:coelan"},
	{"dhcp_allocation_pool", "2016-12-14", "urn:opendaylight:netvirt:dhcp_allocation_pool"},
	{"elan", "2015-06-02", "urn:opendaylight:netvirt:elan"},
	{"ietf-interfaces", "2014-05-08", "urn:ietf:params:xml:ns:yang:ietf-interfaces"},
	{"k8s", "2018-12-05", "urn:opendaylight:k8s"},
	{"k8s-cluster", "2018-11-27", "urn:opendaylight:coe:northbound:k8s-cluster"},
	{"k8s-node", "2017-08-29", "urn:opendaylight:coe:northbound:k8s-node"},
	{"l3vpn", "2014-08-15", "urn:huawei:params:xml:ns:yang:l3vpn"},
	{"odl-interface", "2016-04-06", "urn:opendaylight:genius:interfacemanager"},
	{"odl-l3vpn", "2013-09-11", "urn:opendaylight:netvirt:l3vpn"},
	{"pod", "2017-06-11", "urn:opendaylight:coe:northbound:pod"},
	{"service", "2017-06-11", "urn:opendaylight:coe:northbound:service"},
}

// imported are the modules of types and groupings that they import.
var imported = []modelOf{
	{"coelan-types", "2026-11-26", "urn:coelan:types"},
	{"core", "2018-12-05", "urn:opendaylight:k8s:core"},
	{"iana-if-type", "2014-05-08", "urn:ietf:params:xml:ns:yang:iana-if-type"},
	{"meta-v1", "2018-12-05", "urn:opendaylight:k8s:meta-v1"},
	{"network-policy", "2018-12-05", "urn:opendaylight:k8s:network-policy"},
}

// capabilities are those of RFC 8040, section 9.1.1 that there are.
var capabilities = []any{
	"urn:ietf:params:restconf:capability:depth:1.0", "urn:ietf:params:restconf:capability:fields:1.0",
	"urn:ietf:params:restconf:capability:defaults:1.0?basic-mode=explicit",
}

// hostMeta says where RESTCONF is (RFC 8040, section 3.1).
func hostMeta(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "application/xrd+xml")
	if r.Method == http.MethodGet {
		_, _ = io.WriteString(w, "<XRD xmlns='http://docs.oasis-open.org/ns/xri/xrd-1.0'>"+
			"<Link rel='restconf' href='/restconf'/></XRD>\n")
	}
}

// api are the resources beside data, by what follows the root.
func (h *handler) api(rest string) (any, bool) {
	switch strings.TrimSuffix(rest, "/") {
	case "":
		return map[string]any{"ietf-restconf:restconf": map[string]any{
			"data": map[string]any{}, "operations": map[string]any{}, "yang-library-version": libraryVersion,
		}}, true
	case "operations":
		return map[string]any{"ietf-restconf:operations": map[string]any{}}, true
	case "yang-library-version":
		return map[string]any{"ietf-restconf:yang-library-version": libraryVersion}, true
	}
	return nil, false
}

// static are the data of the protocol itself.
func (h *handler) static(host, path string) (any, bool) {
	switch strings.TrimSuffix(path, "/") {
	case "ietf-yang-library:modules-state":
		return map[string]any{"ietf-yang-library:modules-state": modulesState()}, true
	}
	if path, ok := strings.CutPrefix(strings.TrimSuffix(path, "/"), "ietf-restconf-monitoring:restconf-state"); ok &&
		(path == "" || path[0] == '/') {
		return monitored(restconfState(host), path)
	}
	return nil, false
}

// restconfState is what RESTCONF can (RFC 8040, section 9.3).
func restconfState(host string) map[string]any {
	var list []any
	for _, s := range streamNames {
		list = append(list, map[string]any{
			"name": s.name, "description": s.description, "replay-support": false,
			"access": []any{
				map[string]any{"encoding": "json", "location": "https://" + host + "/restconf/streams/" + s.name},
			},
		})
	}
	return map[string]any{
		"capabilities": map[string]any{"capability": capabilities}, "streams": map[string]any{"stream": list},
	}
}

// monitored is the part of restconf-state that a path leads to.
func monitored(state map[string]any, path string) (any, bool) {
	name, at := "restconf-state", any(state)
	keys := map[string]string{"stream": "name", "access": "encoding"}
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "" && name == "restconf-state" {
			continue
		}
		// An entry that was reached by its key is the only one of its list.
		if list, ok := at.([]any); ok && len(list) == 1 {
			at = list[0]
		}
		object, _ := at.(map[string]any)
		var key string
		var keyed bool
		name, key, keyed = strings.Cut(segment, "=")
		value, there := object[name]
		list, isList := value.([]any)
		if !there || keyed && keys[name] == "" {
			return nil, false
		}
		if keyed && isList {
			i := slices.IndexFunc(list, func(e any) bool { return e.(map[string]any)[keys[name]] == key })
			if i < 0 {
				return nil, false
			}
			value = list[i : i+1]
		}
		at = value
	}
	return map[string]any{"ietf-restconf-monitoring:" + name: at}, true
}

// modulesState is the library of RFC 7895.
func modulesState() map[string]any {
	var modules []any
	h := sha256.New()
	for _, m := range imported {
		modules = append(modules, module(m, "import"))
		fmt.Fprintln(h, m.name, m.revision)
	}
	for _, m := range models {
		modules = append(modules, module(m, "implement"))
		fmt.Fprintln(h, m.name, m.revision)
	}
	return map[string]any{"module-set-id": hex.EncodeToString(h.Sum(nil)[:12]), "module": modules}
}

func module(m modelOf, conformance string) any {
	return map[string]any{
		"name": m.name, "revision": m.revision, "namespace": m.namespace, "conformance-type": conformance,
	}
}

// answerStatic answers what cannot be written.
func answerStatic(w http.ResponseWriter, r *http.Request, value any) error {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		media, err := accepted(r, false)
		if err != nil {
			return err
		}
		return answer(w, r, http.StatusOK, media, value)
	case http.MethodOptions:
		w.Header().Set("Allow", "GET, HEAD, OPTIONS")
		w.WriteHeader(http.StatusOK)
		return nil
	}
	w.Header().Set("Allow", "GET, HEAD, OPTIONS")
	return &datatree.Error{Tag: datatree.OperationNotSupported, Status: http.StatusMethodNotAllowed,
		Message: "the method " + r.Method + " is not for this resource"}
}
