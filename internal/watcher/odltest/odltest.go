// SPDX-License-Identifier: Apache-2.0

// Package odltest has a RESTCONF controller for tests of the watcher: as strict as OpenDaylight
// with COE's models, and as forgetful as a test wants it. It keeps its entries in memory.
package odltest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"
)

// Lists of the entries that the watcher writes.
const (
	Pods      = "pod:coe/pods"
	Nodes     = "k8s-node:k8s-nodes-info/k8s-nodes"
	Services  = "service:service-information/services"
	Endpoints = "service:endpoints-info/endpoints"
)

// The user that a Controller knows.
const (
	User     = "admin"
	Password = "admin"
)

// Controller is a RESTCONF controller as OpenDaylight is: it takes what COE's models have and
// nothing else, and answers 200.
type Controller struct {
	mu   sync.Mutex
	data map[string]map[string]json.RawMessage // entries by list and key
	down bool
	foul string
}

// New returns a Controller without entries. It refuses entries with the name foul.
func New(foul string) *Controller {
	return &Controller{data: map[string]map[string]json.RawMessage{}, foul: foul}
}

// Add adds an entry that another client has written.
func (o *Controller) Add(list, key, entry string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.data[list] == nil {
		o.data[list] = map[string]json.RawMessage{}
	}
	o.data[list][key] = json.RawMessage(entry)
}

// SetDown has it answer 503, or no longer.
func (o *Controller) SetDown(down bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.down = down
}

// Forget loses all entries.
func (o *Controller) Forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.data)
}

// Keys are the keys of a list's entries, sorted.
func (o *Controller) Keys(list string) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Sorted(maps.Keys(o.data[list]))
}

// model are the leaves of each list that COE's models have; of those that are lists, the entries'.
var model = map[string]map[string]any{
	"k8s-cluster:k8s-clusters-info/k8s-clusters": {"cluster-id": nil},
	"k8s-node:k8s-nodes-info/k8s-nodes": {
		"uid": nil, "cluster-id": nil, "host-name": nil, "external-ip-address": nil, "internal-ip-address": nil,
		"pod-cidr": nil,
	},
	"pod:coe/pods": {
		"uid": nil, "name": nil, "host-ip-address": nil, "cluster-id": nil, "network-NS": nil, "port-mac-address": nil,
		"interface": map[string]any{"uid": nil, "ip-address": nil, "network-id": nil, "network-type": nil},
	},
	"service:service-information/services": {
		"uid": nil, "name": nil, "cluster-id": nil, "cluster-ip-address": nil, "network-NS": nil,
		"external-ip-address": nil,
		"load-balancer-IP":    nil, "ingress-ip-address": nil,
		"service-ports": map[string]any{"name": nil, "port": nil, "target-port": nil, "node-port": nil},
	},
	"service:endpoints-info/endpoints": {
		"uid": nil, "name": nil, "network-NS": nil,
		"endpoint-addresses": map[string]any{"ip-address": nil, "host-name": nil, "node-name": nil},
		"endpoint-ports":     map[string]any{"name": nil, "port": nil},
	},
}

func strict(entry map[string]any, leaves map[string]any) error {
	for name, value := range entry {
		children, ok := leaves[name]
		if !ok {
			return fmt.Errorf("schema node %s was not found", name)
		}
		of, isList := children.(map[string]any)
		if !isList {
			continue
		}
		list, ok := value.([]any)
		if !ok {
			return fmt.Errorf("%s is a list", name)
		}
		for _, e := range list {
			if err := strict(e.(map[string]any), of); err != nil {
				return err
			}
		}
	}
	for _, key := range []string{"uid", "cluster-id"} {
		if id, ok := entry[key].(string); ok {
			if _, err := uuid.Parse(id); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
	}
	return nil
}

// ServeHTTP implements http.Handler.
func (o *Controller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	user, password, _ := r.BasicAuth()
	path, found := strings.CutPrefix(r.URL.Path, "/restconf/config/")
	switch {
	case o.down:
		http.Error(w, "starting", http.StatusServiceUnavailable)
	case user != User || password != Password:
		http.Error(w, "unknown user or wrong password", http.StatusUnauthorized)
	case !found:
		http.NotFound(w, r)
	case r.Method == http.MethodGet:
		o.get(w, path)
	default:
		o.edit(w, r, path)
	}
}

func (o *Controller) get(w http.ResponseWriter, container string) {
	for list, entries := range o.data {
		if in, name, _ := strings.Cut(list, "/"); in == container && len(entries) > 0 {
			all := slices.Collect(maps.Values(entries))
			data, err := json.Marshal(map[string]any{container: map[string]any{name: all}})
			if err != nil {
				panic(err)
			}
			_, _ = w.Write(data)
			return
		}
	}
	http.Error(w, `{"errors":{"error":[{"error-tag":"data-missing"}]}}`, http.StatusNotFound)
}

func (o *Controller) edit(w http.ResponseWriter, r *http.Request, path string) {
	i := strings.LastIndex(path, "/")
	list, key := path[:i], path[i+1:]
	leaves, known := model[list]
	module, _, _ := strings.Cut(list, ":")
	if !known {
		http.Error(w, "no such list "+list, http.StatusBadRequest)
		return
	}
	if o.data[list] == nil {
		o.data[list] = map[string]json.RawMessage{}
	}
	if r.Method == http.MethodDelete {
		if _, there := o.data[list][key]; !there {
			http.Error(w, "data-missing", http.StatusNotFound)
		}
		delete(o.data[list], key)
		return
	}
	body, err := io.ReadAll(r.Body)
	var tree map[string][]map[string]any
	if err == nil {
		err = json.Unmarshal(body, &tree)
	}
	name := module + ":" + list[strings.LastIndex(list, "/")+1:]
	if err == nil && (len(tree) != 1 || len(tree[name]) != 1) {
		err = fmt.Errorf("want one entry of %s", name)
	}
	if err == nil {
		err = strict(tree[name][0], leaves)
	}
	if err == nil && tree[name][0]["name"] == o.foul {
		err = fmt.Errorf("%s is a foul name", o.foul)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if o.data[list][key], err = json.Marshal(tree[name][0]); err != nil {
		panic(err)
	}
}

// Has are the entries of a list in short: "name address… port…", sorted.
func (o *Controller) Has(list string) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []string
	for _, data := range o.data[list] {
		var e struct {
			Name      string
			Host      string           `json:"host-name"`
			ClusterIP string           `json:"cluster-ip-address"`
			Interface []map[string]any `json:"interface"`
			Addresses []map[string]any `json:"endpoint-addresses"`
			Ports     []map[string]any `json:"endpoint-ports"`
		}
		if err := json.Unmarshal(data, &e); err != nil {
			panic(err)
		}
		words := []string{e.Name + e.Host}
		if e.ClusterIP != "" {
			words = append(words, "VIP")
		}
		for _, i := range slices.Concat(e.Interface, e.Addresses) {
			words = append(words, fmt.Sprint(i["ip-address"]))
		}
		for _, p := range e.Ports {
			words = append(words, fmt.Sprint(p["port"]))
		}
		all = append(all, strings.Join(words, " "))
	}
	slices.Sort(all)
	return all
}
