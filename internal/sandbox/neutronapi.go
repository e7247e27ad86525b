// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/neutronserver"
	"coelan.io/coelan/internal/sandbox/machine"
)

// neutronTimeout bounds a call of Neutron's API.
const neutronTimeout = time.Minute

type object = map[string]any

// neutronAPI is a client of Neutron.
type neutronAPI struct {
	url  string // ends with a slash
	http http.Client
}

// neutronAPI is a client that connects from the control plane's node: this computer has no way to
// the nodes' networks.
func (s *Sandbox) neutronAPI() neutronAPI {
	dial := func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		namespace, err := machine.Network(s.machineDir(ControlPlaneName))
		if err != nil {
			return nil, err
		}
		defer namespace.Close()
		return conn, within(namespace, func() (err error) {
			conn, err = new(net.Dialer).DialContext(ctx, network, address)
			return err
		})
	}
	return neutronAPI{s.neutron().Endpoint() + "v2.0/", http.Client{
		Timeout: neutronTimeout, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true},
	}}
}

// within runs do on a thread that is in the network namespace.
func within(namespace *os.File, do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- do()
	}()
	return <-done
}

// ensure returns the id of the resource with the attributes of key in Coelan's project. If there is
// none it makes one, with the attributes of more as well.
func (n neutronAPI) ensure(ctx context.Context, kind string, key, more object) (string, error) {
	if id, err := n.find(ctx, kind, key); err != nil || id != "" {
		return id, err
	}
	all := object{"project_id": neutronserver.Project}
	maps.Copy(all, key)
	maps.Copy(all, more)
	var made map[string]resource
	err := n.call(ctx, http.MethodPost, collection(kind), object{kind: all}, &made)
	return made[kind].ID, err
}

// find returns the id of the resource with the attributes of key in Coelan's project; empty if
// there is none.
func (n neutronAPI) find(ctx context.Context, kind string, key object) (string, error) {
	query := url.Values{"project_id": {neutronserver.Project}}
	for name, value := range key {
		query.Set(name, fmt.Sprint(value))
	}
	var list map[string][]resource
	if err := n.call(ctx, http.MethodGet, collection(kind)+"?"+query.Encode(), nil, &list); err != nil {
		return "", err
	}
	if there := list[kind+"s"]; len(there) > 0 {
		return there[0].ID, nil
	}
	return "", nil
}

// collection is the path of all resources of a kind.
func collection(kind string) string { return strings.ReplaceAll(kind, "_", "-") + "s" }

// route puts a subnet on a router, unless it is there.
func (n neutronAPI) route(ctx context.Context, router, subnet string) error {
	id, err := n.find(ctx, "port", object{"device_id": router, "fixed_ips": "subnet_id=" + subnet})
	if err != nil || id != "" {
		return err
	}
	var made resource
	return n.call(ctx, http.MethodPut, "routers/"+router+"/add_router_interface", object{"subnet_id": subnet}, &made)
}

// bind says on which node a port is.
func (n neutronAPI) bind(ctx context.Context, port, node string) error {
	var bound map[string]resource
	err := n.call(ctx, http.MethodPut, "ports/"+port, object{"port": object{"binding:host_id": node}}, &bound)
	if kind := bound["port"].VIF; err == nil && kind != "ovs" {
		err = fmt.Errorf("Neutron cannot have port %s on %s: binding:vif_type is %s; its log says why", port, node, kind)
	}
	return err
}

// resource is as much of one of Neutron's as the sandbox reads.
type resource struct {
	ID  string `json:"id"`
	VIF string `json:"binding:vif_type"`
}

func (n neutronAPI) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, n.url+path, body)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := n.http.Do(request)
	if err != nil {
		return fmt.Errorf("Neutron: %w", err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s: %s", response.Status, data)
	}
	if err == nil {
		err = json.Unmarshal(data, out)
	}
	if err != nil {
		return fmt.Errorf("Neutron: %s %s: %w", method, path, err)
	}
	return nil
}
