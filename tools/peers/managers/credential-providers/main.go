// The kubelet's credential providers: which images a pattern matches, and which credentials a configuration yields.
//
//	credential-providers match                     stdin: lines of JSON [pattern, image]; stdout: true, false or null
//	credential-providers lookup CONFIG DIRECTORY   stdin: lines with an image; stdout: JSON [[username, password], …]
//
// A pattern or image that is no URL is null. A configuration that the kubelet refuses ends the program with status 3
// and the kubelet's words on stderr.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/credentialprovider"
	"k8s.io/kubernetes/pkg/credentialprovider/plugin"
)

func main() {
	klog.LogToStderr(false)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	answers := json.NewEncoder(out)
	switch {
	case len(os.Args) == 2 && os.Args[1] == "match":
		for lines.Scan() {
			var pair [2]string
			if err := json.Unmarshal(lines.Bytes(), &pair); err != nil {
				fail(2, err)
			}
			matched, err := credentialprovider.URLsMatchStr(pair[0], pair[1])
			if err != nil {
				answers.Encode(nil)
			} else {
				answers.Encode(matched)
			}
		}
	case len(os.Args) == 4 && os.Args[1] == "lookup":
		if err := plugin.RegisterCredentialProviderPlugins(os.Args[2], os.Args[3], nil, nil); err != nil {
			fail(3, err)
		}
		keyring := plugin.NewExternalCredentialProviderDockerKeyring("", "", "", "")
		for lines.Scan() {
			found, _ := keyring.Lookup(lines.Text())
			pairs := [][2]string{}
			for _, each := range found {
				pairs = append(pairs, [2]string{each.Username, each.Password})
			}
			answers.Encode(pairs)
		}
	default:
		fail(2, fmt.Errorf("usage: credential-providers match | lookup CONFIG DIRECTORY"))
	}
}

func fail(status int, err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(status)
}
