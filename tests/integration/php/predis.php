<?php
require_once 'Predis/autoload.php'; // Debian's; with Composer: vendor/autoload.php

Predis\Autoloader::register();
$port = getenv('PORT') ?: 7979;
$writing = new Predis\Client("tcp://127.0.0.1:$port?read_write_timeout=5");
$asking = new Predis\Client("tcp://127.0.0.1:$port?read_write_timeout=2");

function run($on, ...$words)
{
    $reply = $on->executeRaw($words, $failed);
    if ($failed) {
        throw new RuntimeException($reply);
    }
    return $reply;
}

run($writing, 'PLAYED', 'predis:u1', 'a');

$candidates = ['a', 'b', 'c']; // recalled
$unseen = run($asking, 'FILTER', 'predis:u1', 'REPLY', 'INDEXES', 'ITEMS', ...$candidates);

$bitmap = run($asking, 'FILTER', 'predis:u1', 'REPLY', 'BITMAP', 'ITEMS', ...$candidates);
$same = array_filter(array_keys($candidates), fn ($i) => ord($bitmap[$i >> 3]) >> (7 - $i % 8) & 1);
assert(array_values($same) === $unseen);

$best = $candidates[$unseen[0]]; // your ranking
run($writing, 'DELIVERED', 'predis:u1', $best);
echo "$best\n";
